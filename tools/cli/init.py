"""`sexpgpu init`: a checkpoint of a program's initial weights, to try it before it is trained."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sexpgpu.tools.cli.options import (
    human_bytes,
    json_option,
    program_argument,
    program_options,
    read_knobs,
)


@click.command(name="init")
@program_argument
@click.option("--checkpoint-dir", "where", metavar="LOC", required=True, help="Where to write it.")
@program_options
@click.option("--seed", type=click.IntRange(min=0), help="Default: the run's `:seed`, else 0.")
@click.option("--step", type=click.IntRange(min=0), default=0, help="The step's number.")
@json_option
def command(
    file: Path,
    where: str,
    variant: str | None,
    knobs: tuple[str, ...],
    seed: int | None,
    step: int,
    as_json: bool,
) -> None:
    """Write a checkpoint of FILE.sx with its parameters as they begin."""
    from sexpgpu.export.initial import write_initial

    written = write_initial(file, where, variant, read_knobs(knobs), seed=seed, step=step)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "checkpoint": written.place,
                    "step": step,
                    "parameters": written.parameters,
                    "bytes": written.bytes,
                    "holds_model": written.obstacle is None,
                },
                indent=2,
            )
        )
        return
    click.echo(
        f"wrote {written.place}: {written.parameters} parameters, {human_bytes(written.bytes)}"
    )
    if written.obstacle is not None:
        click.echo("note: the checkpoint holds no model, so it runs only from the file:", err=True)
        click.echo(written.obstacle.render(), err=True)
