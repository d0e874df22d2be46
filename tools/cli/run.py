"""`sexpgpu run`: train a program's model into checkpoints."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.cli.options import json_option, program_argument, program_options, read_knobs
from sexpgpu.tools.cli.streams import say

if TYPE_CHECKING:
    from sexpgpu.tools.train.run import Outcome

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(name="run")
@program_argument
@click.option(
    "--checkpoint-dir", "where", metavar="LOC", required=True, help="Where checkpoints go."
)
@program_options
@click.option("--steps", type=click.IntRange(min=1), help="Default: the run's `:steps`.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint; there must be one.")
@click.option("--fresh", is_flag=True, help="Begin anew, whatever the location holds.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="PNG", help="Draw the metrics.")
@json_option
def command(
    file: Path,
    where: str,
    variant: str | None,
    knobs: tuple[str, ...],
    steps: int | None,
    device: str,
    resume: bool,
    fresh: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Train what `defrun` of FILE.sx says.

    A run goes on from the newest checkpoint of its location where that is its own.
    """
    if resume and fresh:
        raise SexpgpuError("E-USAGE-001", "--resume and --fresh are one or the other", exit_code=2)
    if plot is not None:
        from sexpgpu.tools.train.plot import check_picture

        check_picture(plot)
    from sexpgpu.tools.train.device import choose_device, enough_memory

    platform = choose_device(device)
    from sexpgpu.export.storage.location import Location
    from sexpgpu.tools.train.plan import make_plan
    from sexpgpu.tools.train.run import TrainingRun

    plan = make_plan(file, variant, read_knobs(knobs), steps)
    if plan.obstacle is not None:
        say("note: the checkpoints will hold no model, so they run only from the file:", err=True)
        say(plan.obstacle.render(), err=True)
    location = Location.parse(where)
    say(f"training {plan.program.slug} on {platform}", err=True)
    with _stopping() as stopped, enough_memory():
        training = TrainingRun(plan, location, sys.stderr, lambda: bool(stopped))
        outcome = training.run("resume" if resume else "fresh" if fresh else "auto")
    if plot is not None:
        from sexpgpu.tools.train.metrics import read_metrics
        from sexpgpu.tools.train.plot import plot_metrics

        plot_metrics(read_metrics(location), plot)
    _show(outcome, as_json)
    if stopped and outcome.step < plan.run.steps:
        name = signal.Signals(stopped[0]).name
        say(
            f"sexpgpu run: stopped by {name} after step {outcome.step}; the same command goes on",
            err=True,
        )
        sys.exit(128 + stopped[0])


def _show(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        click.echo(
            json.dumps(
                {
                    "checkpoint": outcome.place,
                    "step": outcome.step,
                    "metrics": _plain(outcome.metrics),
                    "evaluation": _plain(outcome.evaluation),
                },
                indent=2,
            )
        )
        return
    click.echo(f"checkpoint {outcome.place}")
    for label, values in (("metrics", outcome.metrics), ("evaluation", outcome.evaluation)):
        if values:
            shown = "  ".join(f"{name} {value:.6g}" for name, value in values.items())
            click.echo(f"  {label:<10} {shown}")


def _plain(values: object) -> dict[str, object]:
    """Numbers that JSON has; what is not finite as text."""
    from sexpgpu.export.language.report import plain_value

    assert isinstance(values, dict)
    return {name: plain_value(value) for name, value in values.items()}


@contextmanager
def _stopping() -> Iterator[list[int]]:
    """The signals that came: the first asks for an end, with a checkpoint; the second ends it."""
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)

    # Under `nohup`, a terminal that closes stops nothing.
    heard = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
