"""`sexpgpu import`: the program of a model that others have trained, which loads its weights."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sexpgpu.tools.cli.options import json_option

if TYPE_CHECKING:
    from sexpgpu.tools.importer.writing import Imported


@click.command(name="import")
@click.argument("source", metavar="DIR|FILE", type=click.Path(path_type=Path))
@click.option(
    "-o", "target", metavar="PROGRAM.sx", required=True, type=click.Path(path_type=Path),
    help="The program to write.",
)  # fmt: skip
@click.option(
    "--as", "as_class", metavar="CLASS", help="Which of transformers' classes it is: BertModel …"
)
@click.option("--force", is_flag=True, help="Replace the program if there is one.")
@json_option
def command(source: Path, target: Path, as_class: str | None, force: bool, as_json: bool) -> None:
    """Write the program of a model: a directory of Hugging Face's, or a GGUF file.

    DIR holds config.json and model.safetensors.  The program loads the weights from where they are.
    """
    from sexpgpu.tools.importer.writing import import_model

    imported = import_model(source, target, force=force, as_class=as_class)
    if as_json:
        click.echo(json.dumps(_data(imported), indent=2))
        return
    click.echo(
        f"wrote {imported.program}: {imported.family}, {imported.parameters:,} parameters, "
        f"{imported.numbers:,} numbers, from {imported.weights}"
    )
    for note in _notes(imported):
        click.echo(f"note: {note}", err=True)
    program, directory = str(imported.program), f"{imported.program.stem}-onnx"
    click.echo(f"next: {shlex.join(['sexpgpu', 'export', program, '-o', directory])}")


def _notes(imported: Imported) -> list[str]:
    """What is not as it was expected, or not known."""
    from sexpgpu.tools.importer.printing import listed

    notes = list(imported.notes)
    if imported.unknown:
        notes.append(
            "the configuration has keys that are not known, and the program leaves them out: "
            + listed(imported.unknown)
        )
    if imported.unused:
        notes.append(
            "the file has tensors that the program does not use: " + listed(imported.unused)
        )
    return notes


def _data(imported: Imported) -> dict[str, object]:
    return {
        "program": str(imported.program),
        "family": imported.family,
        "weights": str(imported.weights),
        "parameters": imported.parameters,
        "numbers": imported.numbers,
        "notes": imported.notes,
        "unknown_keys": imported.unknown,
        "unused_tensors": imported.unused,
    }
