"""Checking an artifact: ONNX Runtime's numbers against the reference's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.bounds import index_bounds
from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.reference import Evaluation, WeightReader
from sexpgpu.export.graph.types import Array, DType, concrete
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.model import Precision

#: Exit status of an export whose numbers are wrong.
EXIT_CODE = 3

#: Seconds that the reference may take.
BUDGET = 60.0

#: The largest difference that rounding explains, as a share of the output's largest magnitude.
#: One rounding is 2^-24 in f32 (2^-53 in f64). Runtimes sum in other orders than NumPy, which
#: moves a sum of n terms by some √n roundings, and layers pass that on: 2^-13 leaves a factor of
#: 2,000. Where products are bf16, such a difference can tip an operand to the next bf16, 2^-8
#: away; the sum over many such operands averages it: 2^-5 leaves a factor of 8 of one.
TOLERANCES = {DType.F32: 2.0**-13, DType.F64: 2.0**-40, DType.BF16: 2.0**-5}
BF16_PRODUCTS = 2.0**-5

#: Share of whole numbers or booleans that may differ on random inputs, where they come from
#: comparing floats that are as good as equal.
DIFFERING = 0.01


@dataclass
class Difference:
    """How far an output is from the reference: the largest absolute difference, the same as a
    share of the output's largest magnitude, and the share allowed."""

    absolute: float = 0.0
    relative: float = 0.0
    tolerance: float = 0.0


@dataclass
class Verification:
    """What was compared, by output; `checked` says over how much of the model."""

    outputs: dict[str, Difference] = field(default_factory=dict)
    runs: int = 0
    checked: str = "the whole model"

    def worst(self) -> float:
        """The largest relative difference."""
        return max((d.relative for d in self.outputs.values()), default=0.0)


def verify_model(
    path: Path,
    graph: Graph,
    weights: WeightReader,
    precision: Precision,
    *,
    batches: tuple[int, ...] = (1, 3),
    budget: float = BUDGET,
    build_part: Callable[[Graph], Path] | None = None,
) -> Verification:
    """Compares the ONNX file at `path` with the meaning of `graph`.

    Where the reference is not done within the budget of seconds, as much of the graph is compared
    as it had computed: `build_part` writes the ONNX file of such a part.  Raises E-VERIFY-001
    (exit status 3) where an output differs by more than its tolerance, and E-VERIFY-002 where the
    file does not run.
    """
    deadline = time.monotonic() + budget
    session = Session(path)
    verification = Verification()
    for batch in batches:
        for kind, inputs in example_inputs(graph, batch):
            evaluation = Evaluation(graph, inputs, weights)
            if not _evaluate(evaluation, deadline):
                if not verification.runs and evaluation.count and build_part is not None:
                    _verify_part(evaluation, inputs, precision, verification, build_part)
                if verification.runs or evaluation.count:
                    return verification
                continue
            found = session.run(inputs)
            verification.runs += 1
            for name, want in evaluation.outputs().items():
                difference = verification.outputs.setdefault(name, Difference())
                compare(name, found[name], want, precision, difference, exact=kind == "random")
    return verification


def _evaluate(evaluation: Evaluation, deadline: float) -> bool:
    """Whether the reference came to its end in time, over inputs that the model takes.

    Inputs that it does not take (an index past an axis) leave `evaluation.count` at 0.
    """
    try:
        while evaluation.step():
            if time.monotonic() > deadline:
                return evaluation.count == len(evaluation.graph.nodes)
    except SexpgpuError as error:
        if error.code != "E-VALUE-001":
            raise
        evaluation.count = 0
        return False
    return True


def _verify_part(
    evaluation: Evaluation,
    inputs: Mapping[str, Array],
    precision: Precision,
    verification: Verification,
    build_part: Callable[[Graph], Path],
) -> None:
    """Compares what the reference had computed when its time was up."""
    whole = evaluation.graph
    nodes = whole.nodes[: evaluation.count]
    values = [v for node in nodes for v in node.results if v in evaluation]
    part = Graph(whole.inputs, whole.weights, nodes, {f"part.{i}": v for i, v in enumerate(values)})
    part = remove_dead(part)
    verification.checked = (
        f"{len(part.nodes)} of {len(whole.nodes)} operations, in {BUDGET:.0f} seconds"
    )
    found = Session(build_part(part)).run(inputs)
    verification.runs += 1
    for name, value in part.outputs.items():
        node = value.node
        label = f"{node.scope}/{node.operation.name}" if node else name
        difference = verification.outputs.setdefault(label, Difference())
        compare(label, found[name], evaluation[value], precision, difference)


def example_inputs(graph: Graph, batch: int) -> Iterator[tuple[str, dict[str, Array]]]:
    """Random inputs, and inputs at the edges of what is allowed."""
    generator = np.random.default_rng(batch)
    bounds = index_bounds(graph)
    for kind in ("random", "zeros", "low", "high"):
        yield (
            kind,
            {
                value.name: _example(value, batch, kind, bounds.get(value.name), generator)
                for value in graph.inputs
            },
        )


def _example(
    value: Value, batch: int, kind: str, bound: int | None, generator: np.random.Generator
) -> Array:
    shape = concrete(value.type.shape, batch)
    dtype = value.type.dtype
    if dtype is DType.BOOL:
        return generator.random(shape) < 0.5 if kind == "random" else np.full(shape, kind == "high")
    if dtype.is_integer:
        top = max(1, 2 if bound is None else bound)
        if kind == "random":
            return generator.integers(0, top, shape).astype(dtype.numpy)
        return np.full(shape, top - 1 if kind == "high" else 0, dtype.numpy)
    if kind == "random":
        return generator.standard_normal(shape).astype(dtype.numpy)
    return np.full(shape, {"zeros": 0.0, "low": -8.0, "high": 8.0}[kind], dtype.numpy)


def compare(
    name: str,
    found: Array,
    want: Array,
    precision: Precision,
    difference: Difference,
    *,
    exact: bool = True,
) -> None:
    """Adds to `difference`; raises E-VERIFY-001 where it exceeds the tolerance."""
    dtype = DType.of(want)
    if found.shape != want.shape or found.dtype != want.dtype:
        raise _wrong(
            name,
            f"{list(found.shape)} {found.dtype}",
            f"{list(want.shape)} {want.dtype}",
            "another shape or dtype",
        )
    if not want.size:
        return
    if not dtype.is_float:
        share = float(np.mean(found != want))
        difference.tolerance = DIFFERING
        if exact:
            difference.absolute = difference.relative = max(difference.relative, share)
        if exact and share > DIFFERING:
            raise _wrong(name, f"{share:.1%} of the elements differ", f"at most {DIFFERING:.0%}")
        return
    difference.tolerance = max(TOLERANCES[dtype], BF16_PRODUCTS if precision == "bf16" else 0.0)
    a, b = found.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        raise _wrong(name, "infinities or NaN elsewhere than in the reference", "the same ones")
    if not finite.any():
        return
    scale = max(float(np.abs(b[finite]).max()), float(np.finfo(np.float32).tiny))
    absolute = float(np.abs(a[finite] - b[finite]).max())
    relative = absolute / scale
    difference.absolute = max(difference.absolute, absolute)
    difference.relative = max(difference.relative, relative)
    if relative > difference.tolerance:
        raise _wrong(
            name,
            f"a difference of {absolute:.3g}, {relative:.3g} of the largest magnitude",
            f"at most {difference.tolerance:.3g} of it",
        )


def _wrong(name: str, came: str, expected: str, what: str = "other numbers") -> SexpgpuError:
    return SexpgpuError(
        "E-VERIFY-001",
        f"ONNX Runtime gives {what} for `{name}` than the model means",
        came=came,
        expected=expected,
        help="nothing was written; please report the program. --no-verify writes it all the same",
        exit_code=EXIT_CODE,
    )
