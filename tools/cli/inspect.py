"""`sexpgpu inspect`: what a checkpoint, an export or an ONNX file holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sexpgpu.tools.cli.options import human_bytes, json_option

if TYPE_CHECKING:
    from sexpgpu.export.inspection import Inspection, Tensor

_SHOWN = 40


@click.command(name="inspect")
@click.argument("path")
@click.option("--all", "everything", is_flag=True, help="List every weight and operator.")
@json_option
def command(path: str, everything: bool, as_json: bool) -> None:
    """Show what PATH holds: a checkpoint, an export, model.json, ONNX, or a file of weights."""
    from sexpgpu.export.inspection import inspect

    found = inspect(path)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo("\n".join(map(_printable, _lines(found, None if everything else _SHOWN))))


def _lines(found: Inspection, limit: int | None) -> list[str]:
    total = sum(found.files.values())
    lines = [f"{found.place}: {found.kind}, {human_bytes(total)}"]
    facts = {
        key: value
        for key, value in found.facts.items()
        if value is not None and value is not False and value not in ([], "")
    }
    width = max([len(key) for key in facts] + [9])
    for key, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        lines.append(f"  {key:<{width}} {'yes' if shown is True else shown}")
    for label, tensors in (("inputs", found.inputs), ("outputs", found.outputs)):
        for index, tensor in enumerate(tensors):
            lines.append(f"  {label if index == 0 else '':<{width}} {_tensor(tensor)}")
    if len(found.files) > 1:
        for index, (name, size) in enumerate(found.files.items()):
            label = "files" if index == 0 else ""
            lines.append(f"  {label:<{width}} {name} {human_bytes(size)}")
    if found.operators:
        count = sum(found.operators.values())
        shown = ", ".join(f"{n} {op}" for op, n in list(found.operators.items())[:limit])
        lines.append(f"  {'operators':<{width}} {count}: {shown}")
    if found.weights:
        elements = sum(tensor.elements for tensor in found.weights)
        lines.append(f"  {'weights':<{width}} {len(found.weights)}, {elements:,} numbers")
        lines += [f"    {_tensor(tensor)}" for tensor in found.weights[:limit]]
        if limit is not None and len(found.weights) > limit:
            lines.append(f"    … {len(found.weights) - limit} more (--all shows them)")
    return lines


def _printable(line: str) -> str:
    """Names in a file may be anything; none may move the terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _tensor(tensor: Tensor) -> str:
    return f"{tensor.name} [{', '.join(str(d) for d in tensor.shape)}] {tensor.dtype}"
