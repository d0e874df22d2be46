"""Rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sexpgpu.export.graph.graph import Attributes, Value
from sexpgpu.export.graph.types import (
    FLOATS,
    INTEGERS,
    Array,
    DType,
    Shape,
    TensorType,
    format_shape,
)
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, Rows, operation
from sexpgpu.export.operations.rotation import Rotation, RotationForm
from sexpgpu.export.operations.rules import fail_shape, fail_value, known
from sexpgpu.export.operations.signature import GIVEN, Attribute, Kind, Operand, signature

#: Angles that a table may have: 512 MiB of f32 for the cosines, and as much for the sines.
MAXIMUM_ANGLES = 2**27
#: What `beta-slow` and `beta-fast` may be.
_LEAST_TURNS, _MOST_TURNS = 1e-6, 1e6


@operation
class Rotary(Operation):
    """Turns pairs of x's components by angles that grow with their position.

    x is [..., time, width].  Pair j of the first `dimensions` components (all, unless given; the
    others stay) is turned by the angle position · base^(-2j / dimensions):

        (a, b) becomes (a · cos - b · sin, b · cos + a · sin)

    Su et al. 2021.  The pairs are (j, j + dimensions/2), as in Llama; `interleaved` ones (2j,
    2j + 1), as in GPT-J.  Positions are 0, 1, 2, … along time unless given.  Angles, cosines and
    sines are computed in f64, and the latter rounded to x's dtype, or to f32 for bf16.

    `scaling` stretches the positions that a model was trained on: `:linear` divides every
    frequency by `factor`; `:llama3` divides those whose wave is longer than `original / low`,
    leaves those that are shorter than `original / high`, and blends between (Llama 3.1); `:yarn`
    divides those that turn less than `beta-slow` times over the `original` positions, leaves those
    that turn more than `beta-fast` times, and blends between by the pair's index, from the whole
    ones outside unless `truncate` is false (Peng et al. 2023, as transformers computes it).
    Cosines and sines are multiplied by `attention-factor`: unless given it is 1, and of `:yarn`
    0.1 · ln(factor) + 1 where `factor` is above 1.
    `length` is for positions below it: their cosines and sines then stand in a table, and
    positions outside are taken to be the nearest inside.

    ONNX: Mul, Sub, Add and Concat with constant tables, from which given positions Gather; Cos and
    Sin in f64 where there is no `length`.  In the fused profile RotaryEmbedding for f32 of rank 4.
    """

    name = "rotary"
    family = "attention"
    signature = signature(
        Operand("x", FLOATS),
        Operand("positions", INTEGERS, group="positions", optional=True, keyword=True),
        Attribute("base", Kind.NUMBER, 10000.0),
        Attribute("interleaved", Kind.BOOLEAN, False),
        Attribute("dimensions", Kind.INTEGER, None),
        Attribute("length", Kind.INTEGER, None),
        Attribute("scaling", Kind.WORD, None, choices=("linear", "llama3", "yarn")),
        Attribute("factor", Kind.NUMBER, 1.0),
        Attribute("low", Kind.NUMBER, 1.0),
        Attribute("high", Kind.NUMBER, 4.0),
        Attribute("original", Kind.INTEGER, 8192),
        Attribute("beta-fast", Kind.NUMBER, 32.0),
        Attribute("beta-slow", Kind.NUMBER, 1.0),
        Attribute("truncate", Kind.BOOLEAN, True),
        Attribute("attention-factor", Kind.NUMBER, None),
    )
    constraints = (
        "`x` is of rank 2 or more; its width is not the batch.",
        "`dimensions`, or the width, is even and at most the width.",
        "`positions` are [time], or [batch, time] for x of rank 3 or more; axes of length 1 may "
        "stand between.",
        "Without `positions` time is not the batch, and no longer than `length`.",
        "`base`, `factor` and `low` are finite and above 0, `high` is above `low`, `original` is "
        "at least 1.",
        "`beta-slow` is at most `beta-fast`, both are from 10^-6 to 10^6; `attention-factor` is "
        "finite and above 0; of `:yarn` `base` is above 1.",
        "`length` is at least 1; a table has at most 2^27 angles.",
    )
    example = ("(rotary (tensor (list (list 1.0 2.0))))", "[[1.0 2.0]]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x = inputs[0]
        if x.rank < 2:
            fail_shape("`rotary` takes [..., time, width]", came=f"a tensor of rank {x.rank}")
        width = known("rotary", "the width", x.shape[-1])
        turned = width if attributes["dimensions"] is None else attributes["dimensions"]
        if not 0 <= turned <= width or turned % 2:
            fail_value(
                "`rotary` turns pairs of components",
                came=f"{turned} of {width} components",
                expected="an even number, at most the width",
            )
        _check_numbers(attributes)
        length = attributes["length"]
        if len(inputs) > 1:
            _check_positions(inputs[1].shape, x.shape)
        else:
            time = known("rotary", "how many positions there are", x.shape[-2])
            if length is not None and time > length:
                fail_value("`rotary` has more positions than `length`", came=f"{time} of {length}")
            length = time
        if length is not None and length * turned // 2 > MAXIMUM_ANGLES:
            fail_value(
                "the table of `rotary` is too large",
                came=f"{length} positions of {turned // 2} angles",
                expected=f"at most {MAXIMUM_ANGLES} angles",
            )
        return [x]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        x = inputs[0]
        wide = x.astype(np.float32) if DType.of(x) is DType.BF16 else x
        rotation = rotation_of(x.shape, attributes)
        positions = np.arange(x.shape[-2]) if len(inputs) == 1 else inputs[1]
        if positions.ndim > 1:
            ones = [1] * (x.ndim - 3)
            positions = positions.reshape(positions.shape[0], *ones, positions.shape[-1])
        cosines, sines = rotation.tables(positions, wide.dtype)
        return [rotation.turn(wide, cosines, sines).astype(x.dtype)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        x = inputs[0]
        rotation = rotation_of(x.shape, attributes)
        if not rotation.turned or 0 in x.shape:
            return [onnx.add("Identity", x.name)]
        return [RotationForm(onnx, rotation, x).write(inputs[1] if len(inputs) > 1 else None)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        type, rank = inputs[operand], inputs[0].rank
        if operand == 0:
            return [Apart(axis) if axis < rank - 1 else WHOLE]
        if axis == type.rank - 1:
            return [Apart(rank - 2)]
        return [Apart(0) if axis == 0 else WHOLE]

    def restrict(
        self, rows: Rows, attributes: Attributes
    ) -> tuple[tuple[Value, ...], Attributes] | None:
        """For some positions it needs to be told which, and they come from the same table."""
        if rows.axis != rows.result.rank - 2:
            return rows.inputs, attributes
        if len(rows.inputs) > 1:
            return None if rows.input_axes[1] is None else (rows.inputs, attributes)
        length = attributes["length"] or rows.result.shape[-2]
        return (*rows.inputs, rows.positions), {
            **attributes,
            "length": length,
            GIVEN: ("positions",),
        }


def rotation_of(x: Shape, attributes: Attributes) -> Rotation:
    turned = attributes["dimensions"]
    return Rotation(
        turned=known("rotary", "the width", x[-1]) if turned is None else turned,
        base=attributes["base"],
        interleaved=attributes["interleaved"],
        length=attributes["length"],
        scaling=attributes["scaling"],
        factor=attributes["factor"],
        low=attributes["low"],
        high=attributes["high"],
        original=attributes["original"],
        beta_fast=attributes["beta-fast"],
        beta_slow=attributes["beta-slow"],
        truncate=attributes["truncate"],
        attention_factor=attributes["attention-factor"],
    )


def _check_positions(shape: Shape, x: Shape) -> None:
    fits = len(shape) == 1 or (len(x) > 2 and len(shape) > 1 and shape[0] == x[0])
    if not shape or not fits or shape[-1] != x[-2] or set(shape[1:-1]) - {1}:
        fail_shape(
            "`positions` of `rotary` are not one for each place in time",
            came=f"{format_shape(shape)} for x {format_shape(x)}",
            expected=f"{format_shape(x[-2:-1])}"
            + (f" or {format_shape((x[0], x[-2]))}" if len(x) > 2 else ""),
        )


def _check_numbers(attributes: Attributes) -> None:
    for name in ("base", "factor", "low", "attention-factor"):
        if attributes[name] is not None and not 0 < attributes[name] < math.inf:
            fail_value(
                f"`{name}` of `rotary` is out of range",
                came=str(attributes[name]),
                expected="a finite number above 0",
            )
    if not attributes["low"] < attributes["high"] < math.inf:
        fail_value(
            "`high` of `rotary` is not above `low`",
            came=f"{attributes['high']} and {attributes['low']}",
        )
    if not _LEAST_TURNS <= attributes["beta-slow"] <= attributes["beta-fast"] <= _MOST_TURNS:
        fail_value(
            "`beta-slow` and `beta-fast` of `rotary` are out of range",
            came=f"{attributes['beta-slow']} and {attributes['beta-fast']}",
            expected="numbers from 10^-6 to 10^6, the first at most the second",
        )
    if attributes["scaling"] == "yarn" and attributes["base"] <= 1:
        fail_value(
            "`base` of `rotary` is out of range",
            came=str(attributes["base"]),
            expected="above 1 where `scaling` is `:yarn`",
        )
    for name in ("length", "original"):
        if attributes[name] is not None and attributes[name] < 1:
            fail_value(
                f"`{name}` of `rotary` is out of range",
                came=str(attributes[name]),
                expected="at least 1",
            )
