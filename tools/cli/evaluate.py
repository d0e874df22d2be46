"""`sexpgpu evaluate`: the evaluation numbers of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sexpgpu.tools.cli.options import json_option, program_argument

if TYPE_CHECKING:
    from sexpgpu.tools.train.evaluate import Evaluated


@click.command(name="evaluate")
@program_argument
@click.option("--checkpoint", "where", metavar="LOC", required=True, help="A step or a location.")
@click.option("--trained", is_flag=True, help="The trained weights, not their averages.")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(["f32", "bf16"]),
    help="Of the products; several are shown side by side. Default: the run's.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@json_option
def command(
    file: Path,
    where: str,
    trained: bool,
    precisions: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Evaluate a checkpoint with FILE.sx, under the variant and knobs that it records."""
    from sexpgpu.tools.train.device import choose_device, enough_memory

    choose_device(device)
    from sexpgpu.tools.train.evaluate import evaluate_checkpoint

    with enough_memory():
        found = evaluate_checkpoint(file, where, trained=trained, precisions=precisions)  # type: ignore[arg-type]
    if as_json:
        click.echo(json.dumps(_data(found), indent=2))
    else:
        click.echo("\n".join(_lines(found)))


def _data(found: Evaluated) -> dict[str, object]:
    from sexpgpu.export.language.report import plain_value

    return {
        "checkpoint": found.checkpoint,
        "step": found.step,
        "weights": found.weights,
        "records": found.records,
        "metrics": {
            precision: {name: plain_value(value) for name, value in metrics.items()}
            for precision, metrics in found.metrics.items()
        },
    }


def _lines(found: Evaluated) -> list[str]:
    lines = [
        f"evaluation: {found.checkpoint}, its {found.weights}",
        f"  {found.records:,} records of {found.data}",
    ]
    columns = list(found.metrics)
    names = list(found.metrics[columns[0]])
    width = max(len(name) for name in names)
    lines.append(f"  {'':<{width}}" + "".join(f"  {column:>12}" for column in columns))
    for name in names:
        numbers = [f"  {found.metrics[column][name]:>12.6g}" for column in columns]
        lines.append(f"  {name:<{width}}" + "".join(numbers))
    return lines
