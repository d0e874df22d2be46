"""`sexpgpu export`: a model and its weights as an artifact that any ONNX runtime runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.cli.options import (
    human_bytes,
    json_option,
    program_options,
    read_knobs,
    tensor_data,
    tensor_lines,
)

if TYPE_CHECKING:
    from sexpgpu.export.artifact import Exported
    from sexpgpu.export.subject import Subject

_PRECISIONS = click.Choice(["f32", "bf16"])


@click.command(name="export")
@click.argument("file", metavar="[FILE.sx]", required=False, type=click.Path(path_type=Path))
@click.option("--checkpoint", metavar="LOC", help="A step, or a location for its newest one.")
@click.option(
    "-o", "directory", metavar="DIR", required=True, type=click.Path(path_type=Path),
    help="The directory to write.",
)  # fmt: skip
@program_options
@click.option("--trained", is_flag=True, help="The trained weights, not their averages.")
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME", help="Only this output; may be repeated."
)
@click.option("--at", is_flag=True, help="One position a record: adds the input `at`.")
@click.option("--precision", type=_PRECISIONS, help="Of the products; default the model's.")
@click.option("--weights", type=_PRECISIONS, default="f32", help="How weights are stored.")
@click.option("--profile", type=click.Choice(["portable", "fused"]), default="portable")
@click.option("--opset", type=int, help="Stamp this opset; default the least that is needed.")
@click.option("--batch", type=click.IntRange(min=1), help="A fixed number of records.")
@click.option(
    "--target",
    type=click.Choice(["any", "cpu", "cuda"]),
    default="any",
    help="Where bf16 products run: cuda natively, else emulated exactly.",
)
@click.option("--embed", is_flag=True, help="The weights inside model.onnx as well.")
@click.option(
    "--unroll", is_flag=True, help="Write the steps of lstm, gru and scan one after another."
)
@click.option("--no-verify", is_flag=True, help="Do not run the file against the reference.")
@json_option
def command(
    file: Path | None,
    checkpoint: str | None,
    directory: Path,
    variant: str | None,
    knobs: tuple[str, ...],
    trained: bool,
    no_verify: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write a model and its weights to a directory: model.json, params.safetensors, model.onnx.

    From a checkpoint alone; from FILE.sx under the variant and knobs that a checkpoint records; or
    from FILE.sx alone, where every parameter is read from a file.
    """
    from sexpgpu.export.artifact import ExportOptions, export_model
    from sexpgpu.export.replacement import check_replaceable

    check_replaceable(directory)
    subject = _subject(file, checkpoint, variant, knobs, trained)
    if not as_json:
        click.echo(f"export: {subject.origin}")
        for line in subject.moved:
            click.echo(f"  {line}")
    exported = export_model(subject, directory, ExportOptions(verify=not no_verify, **options))
    if as_json:
        click.echo(json.dumps(_data(subject, exported), indent=2))
        return
    graph = exported.model.graph
    count = len(graph.weights)
    click.echo(
        f"wrote {directory}: {count} weight{'s' if count != 1 else ''}, "
        f"{human_bytes(exported.weight_bytes)}"
    )
    for line in tensor_lines("inputs", {v.name: v.type for v in graph.inputs}):
        click.echo(line)
    for line in tensor_lines("outputs", {n: v.type for n, v in graph.outputs.items()}):
        click.echo(line)
    for line in _verification_lines(exported):
        click.echo(line, err=True)


def _subject(
    file: Path | None,
    checkpoint: str | None,
    variant: str | None,
    knobs: tuple[str, ...],
    trained: bool,
) -> Subject:
    from sexpgpu.export.subject import from_checkpoint, from_program, from_program_and_checkpoint

    if checkpoint is not None and (variant is not None or knobs):
        raise SexpgpuError(
            "E-USAGE-001",
            "a checkpoint records its variant and knobs; they cannot be given again",
            exit_code=2,
        )
    if file is not None and checkpoint is not None:
        return from_program_and_checkpoint(file, checkpoint, trained=trained)
    if checkpoint is not None:
        return from_checkpoint(checkpoint, trained=trained)
    if file is None:
        raise SexpgpuError(
            "E-USAGE-001",
            "nothing to export",
            expected="FILE.sx, --checkpoint LOC, or both",
            exit_code=2,
        )
    if trained:
        raise SexpgpuError(
            "E-USAGE-001", "--trained chooses among a checkpoint's weights", exit_code=2
        )
    return from_program(file, variant, read_knobs(knobs))


def _verification_lines(exported: Exported) -> list[str]:
    if exported.verification is None:
        return [exported.note]
    checked = exported.verification
    lines = [f"verified {checked.checked} in ONNX Runtime, {checked.runs} runs"]
    width = max((len(name) for name in checked.outputs), default=0)
    for name, d in checked.outputs.items():
        lines.append(
            f"  {name:<{width}}  difference {d.absolute:.2g}, {d.relative:.2g} of the largest "
            f"magnitude (allowed {d.tolerance:.2g})"
        )
    return lines


def _data(subject: Subject, exported: Exported) -> dict[str, Any]:
    model = exported.model
    data: dict[str, Any] = {
        "from": subject.origin,
        "moved": subject.moved,
        "directory": str(exported.directory),
        "checkpoint": model.checkpoint,
        "step": model.step,
        "slug": model.slug,
        "precision": model.precision,
        "inputs": tensor_data({v.name: v.type for v in model.graph.inputs}),
        "outputs": tensor_data({n: v.type for n, v in model.graph.outputs.items()}),
        "weights": len(model.graph.weights),
        "weight_bytes": exported.weight_bytes,
        "files": exported.files,
        "verification": None,
    }
    if exported.verification is not None:
        data["verification"] = {
            "checked": exported.verification.checked,
            "runs": exported.verification.runs,
            "outputs": {
                name: {
                    "largest_absolute": d.absolute,
                    "largest_relative": d.relative,
                    "tolerance": d.tolerance,
                }
                for name, d in exported.verification.outputs.items()
            },
        }
    return data
