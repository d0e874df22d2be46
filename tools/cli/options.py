"""Options that several commands share, and how tensors are listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sexpgpu.export.graph.types import TensorType

F = TypeVar("F", bound=Callable[..., Any])


def program_options(command: F) -> F:
    """`--variant` and `--knob`."""
    command = click.option(
        "--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Set a knob; may be repeated."
    )(command)
    return click.option("--variant", metavar="NAME", help="Take the knobs of this variant.")(
        command
    )


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print data for a program.")(
        command
    )


def program_argument(command: F) -> F:
    """The file of a program."""
    return click.argument("file", metavar="FILE.sx", type=click.Path(path_type=Path))(command)


def read_knobs(texts: Iterable[str]) -> dict[str, object]:
    """`--knob` values by name."""
    from sexpgpu.export.language.knobs import read_override

    return dict(read_override(text) for text in texts)


def one_record(type: TensorType) -> list[int]:
    """The shape for a batch of one, as callers see it."""
    from sexpgpu.export.graph.types import concrete

    return list(concrete(type.shape, 1))


def tensor_lines(label: str, tensors: Mapping[str, TensorType]) -> list[str]:
    """`  inputs  tokens [1, 16] i32`, a line each."""
    return [
        f"  {label if index == 0 else '':<7} {name} {one_record(type)} {type.dtype}"
        for index, (name, type) in enumerate(tensors.items())
    ]


def tensor_data(tensors: Mapping[str, TensorType]) -> list[dict[str, object]]:
    """Tensors as the socket's greeting lists them."""
    return [
        {"name": name, "shape": one_record(type), "dtype": type.dtype.value}
        for name, type in tensors.items()
    ]


def human_bytes(count: float) -> str:
    """`109.8 KiB`"""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
