"""Tensors that a program writes out: literals, and those filled with one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.language.tensors import (
    Initializer,
    Number,
    Tensor,
    default_dtype,
    is_number,
    number_array,
)
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin, Call, Implementation
from sexpgpu.export.operations.operation import all_operations, check_size

_FILLED = "(&optional shape &key (dtype f32))"
_ABOUT_FILLED = "a tensor of {0} everywhere; without a shape an initializer: every number is {0}"


def literal_builtins(tracer: Tracer) -> list[Builtin]:
    """`tensor`, `zeros` and `ones`."""
    return [
        Builtin("tensor", "(values &key dtype)", _literal(tracer), "a literal tensor"),
        Builtin("zeros", _FILLED, _filled(tracer, 0.0, "zeros"), _ABOUT_FILLED.format(0)),
        Builtin("ones", _FILLED, _filled(tracer, 1.0, "ones"), _ABOUT_FILLED.format(1)),
    ]


def _literal(tracer: Tracer) -> Implementation:
    """`(tensor (list 1.0 2.0))`: nested lists of numbers."""

    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Tensor:
        dtype = keywords.get("dtype")
        if dtype is not None and not isinstance(dtype, DType):
            raise call.wrong_kind(dtype, "dtype", "a dtype")
        shape, leaves = _leaves(call, positional[0])
        if dtype is None:
            kinds = {default_dtype(leaf) for leaf in leaves}
            # A fraction makes floats of all; a boolean among numbers is then an error.
            dtype = next((d for d in (DType.F32, DType.I32) if d in kinds), DType.BOOL)
            dtype = dtype if leaves else DType.F32
        return Tensor(tracer.constant(_array(call, leaves, dtype).reshape(shape), call.span))

    return make


def _array(call: Call, leaves: list[Number], dtype: DType) -> Array:
    with call.blamed(0):
        for leaf in leaves:
            number_array("tensor", leaf, dtype)
        return np.array(leaves, None if dtype.is_integer else np.float64).astype(dtype.numpy)


def _leaves(call: Call, values: object) -> tuple[list[int], list[Number]]:
    """The shape of nested lists, and their numbers in order.

    The lists of one depth are all as long; the walk goes depth by depth, and stops where they
    would hold too much.
    """
    shape: list[int] = []
    level: list[Any] = [values]
    while any(isinstance(item, tuple) for item in level):
        lengths = {len(item) if isinstance(item, tuple) else None for item in level}
        if len(lengths) > 1:
            shown = " and ".join(sorted("a number" if n is None else f"{n}" for n in lengths))
            raise call.error(
                "E-SHAPE-001",
                "the lists of a literal tensor are not all as long",
                0,
                came=f"{shown}, at depth {len(shape) + 1}",
                expected="lists of one length at each depth",
            )
        with call.blamed(0):
            check_size("`tensor`", (*shape, 1))
        (length,) = lengths
        assert length is not None
        call.evaluator.check_length(length * len(level), call.span)
        call.evaluator.charge(length * len(level), call.span)
        shape.append(length)
        level = [part for item in level for part in item]
    for item in level:
        if not is_number(item):
            help = "`stack` makes one tensor of several" if isinstance(item, Tensor) else None
            expected = "numbers, in lists of one length to any depth"
            raise call.wrong_kind(item, 0, expected, help)
    return shape, level


def _filled(tracer: Tracer, number: float, name: str) -> Implementation:
    """`(zeros shape)` is a tensor, `(zeros)` an initializer."""

    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> object:
        if positional:
            full = all_operations()["full"]
            return tracer.call(full, [positional[0], number], keywords, call)
        if keywords:
            raise call.error(
                "E-CALL-002",
                f"`{name}` of a dtype needs a shape",
                expected=f"({name} shape :dtype dtype), or ({name}), the initializer",
            )
        return Initializer(name, ())

    return make
