"""Random numbers, in training alone: a model that runs alone draws none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, DType, TensorType
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.operations.creation import check_dimensions
from sexpgpu.export.operations.operation import WHOLE, Apart, Fate, Operation, operation
from sexpgpu.export.operations.rules import fail_value
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, signature
from sexpgpu.schemas.errors import SexpgpuError

_SEED = Attribute("seed", Kind.INTEGER, 0)


class Random(Operation):
    """Draws numbers from a generator that the attribute `seed` starts: equal seeds and shapes give
    equal numbers."""

    family = "random"
    random = True

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> NoReturn:
        raise SexpgpuError(
            "E-ONNX-001",
            f"`{self.name}` draws random numbers, and a model that runs alone draws none",
            help="use it in training alone",
        )

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [WHOLE for _ in results]

    def restrict(self, rows: object, attributes: Attributes) -> None:
        # Other positions would be drawn other numbers.
        return None

    def varies_along(self, attributes: Attributes, result: TensorType) -> frozenset[int]:
        return frozenset(range(result.rank))

    def _check_seed(self, attributes: Attributes) -> None:
        if attributes["seed"] < 0:
            fail_value(
                f"the seed of `{self.name}` is negative",
                came=str(attributes["seed"]),
                expected="0 or more",
            )


class Drawn(Random):
    """A tensor of random numbers."""

    constraints = (
        "No dimension is negative.",
        "The dtype is a float.",
        "The numbers that describe the distribution are finite and in order.",
        "`seed` is 0 or more.",
    )

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        check_dimensions(self.name, attributes["shape"])
        dtype: DType = attributes["dtype"]
        if not dtype.is_float:
            raise SexpgpuError(
                "E-DTYPE-002",
                f"`{self.name}` draws floats",
                came=str(dtype),
                expected=", ".join(d for d in DType if d in FLOATS),
            )
        self._check_seed(attributes)
        return [TensorType(dtype, attributes["shape"])]


@operation
class RandomNormal(Drawn):
    """Numbers of the normal distribution with this mean and standard deviation.

    As `numpy.random.Generator.normal`, drawn in f64 and rounded.

    ONNX: none; a model that runs alone draws no numbers.
    """

    name = "random-normal"
    signature = signature(
        Attribute("shape", Kind.SHAPE, keyword=False),
        Attribute("mean", Kind.NUMBER, 0.0),
        Attribute("deviation", Kind.NUMBER, 1.0),
        Attribute("dtype", Kind.DTYPE, DType.F32),
        _SEED,
    )
    example = ("(shape (random-normal (list 2 3)))", "(list 2 3)")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        mean, deviation = attributes["mean"], attributes["deviation"]
        if not math.isfinite(mean) or not 0 <= deviation < math.inf:
            fail_value(
                "`random-normal` is given no distribution",
                came=f"mean {mean} and deviation {deviation}",
                expected="finite numbers, and a deviation of at least 0",
            )
        return super().infer(inputs, attributes)

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        drawn = _generator(attributes).standard_normal(attributes["shape"])
        numbers = drawn * attributes["deviation"] + attributes["mean"]
        return [np.asarray(numbers).astype(attributes["dtype"].numpy)]


@operation
class RandomUniform(Drawn):
    """Numbers between `low` and `high`, all alike probable.

    As `numpy.random.Generator.uniform`, drawn in f64 and rounded.

    ONNX: none; a model that runs alone draws no numbers.
    """

    name = "random-uniform"
    signature = signature(
        Attribute("shape", Kind.SHAPE, keyword=False),
        Attribute("low", Kind.NUMBER, 0.0),
        Attribute("high", Kind.NUMBER, 1.0),
        Attribute("dtype", Kind.DTYPE, DType.F32),
        _SEED,
    )
    example = ("(shape (random-uniform (list 4) :high 2.0))", "(list 4)")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        low, high = attributes["low"], attributes["high"]
        if not -math.inf < low <= high < math.inf:
            fail_value(
                "`random-uniform` is given no interval",
                came=f"low {low} and high {high}",
                expected="finite numbers, low at most high",
            )
        return super().infer(inputs, attributes)

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        low, high = attributes["low"], attributes["high"]
        numbers = low + (high - low) * _generator(attributes).random(attributes["shape"])
        return [np.asarray(numbers).astype(attributes["dtype"].numpy)]


@operation
class Dropout(Random):
    """Every element is zero with the probability `rate`, by itself; the others are divided by
    1 − `rate`, so that the mean stays.

    Outside training it is `x`.  Srivastava et al., "Dropout: a simple way to prevent neural
    networks from overfitting", 2014.

    ONNX: none; a model that runs alone leaves nothing out.
    """

    name = "dropout"
    only_trains = True
    signature = signature(
        Operand("x", FLOATS), Attribute("rate", Kind.NUMBER, keyword=False), _SEED
    )
    constraints = ("`rate` is at least 0 and less than 1.", "`seed` is 0 or more.")
    example = ("(dropout (tensor (list 1.0 2.0)) 0.0)", "[1.0 2.0]")

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        if not 0 <= attributes["rate"] < 1:
            fail_value(
                "the rate of `dropout` is no share of the elements",
                came=str(attributes["rate"]),
                expected="at least 0 and less than 1",
            )
        self._check_seed(attributes)
        return [inputs[0]]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        (x,) = inputs
        rate = attributes["rate"]
        kept = _generator(attributes).random(x.shape) >= rate
        wide = x.astype(np.result_type(x.dtype, np.float32))
        return [np.where(kept, wide / (1 - rate), 0).astype(x.dtype)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        return [Apart(axis)]


def _generator(attributes: Attributes) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(attributes["seed"]))
