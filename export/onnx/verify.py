"""Checking an artifact: ONNX Runtime's numbers against the reference's."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.reference import Evaluation, WeightReader
from sexpgpu.export.graph.types import Array, elements
from sexpgpu.export.onnx.difference import Difference, compare
from sexpgpu.export.onnx.examples import Examples
from sexpgpu.export.onnx.perturbation import Perturbation
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.passes.independence import prove_independence
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError

#: Seconds that the reference may take.
BUDGET = 60.0

#: Bytes of weights up to which the file is loaded as its users load it.  Larger ones are mapped:
#: copying them would take longer than the comparison, and a model that fills most of a machine's
#: memory can be verified there.
_COPIED = 2**28

#: Bytes of weights from which one record of the model may be all that there is time for.
_LARGE = 2**29

#: Evaluations with errors of rounding, at most, where a difference asks for an explanation.
_PERTURBATIONS = 8


@dataclass
class Verification:
    """What was compared, by output; `checked` says over how much of the model."""

    outputs: dict[str, Difference] = field(default_factory=dict)
    runs: int = 0
    checked: str = "the whole model"


def verify_model(
    path: Path,
    graph: Graph,
    weights: WeightReader,
    build_part: Callable[[Graph], Path],
    *,
    fixed: bool = False,
    budget: float = BUDGET,
) -> Verification:
    """Compares the ONNX file at `path` with the meaning of `graph`; `fixed` is its batch.

    Where the reference is not done within the budget of seconds, as much of the graph is compared
    as it had computed: `build_part` writes the ONNX file of such a part.  Raises E-VERIFY-001
    (exit status 3) where an output differs by more than rounding explains, and E-VERIFY-002 where
    the file does not run.
    """
    deadline = time.monotonic() + budget
    size = sum(_bytes(value) for value in graph.weights.values())
    mapped = size > _COPIED
    verification = Verification()
    examples = Examples(graph)
    apart = not fixed and prove_independence(graph).independent
    whole: list[tuple[Evaluation, dict[str, Array], int]] = []
    with ThreadPoolExecutor(1) as loader:
        # ONNX Runtime loads the file while the reference computes.
        loading = loader.submit(Session, path, mapped=mapped)
        calls = deque(examples.calls(apart=apart))
        if apart and size > _LARGE:
            calls.appendleft(("random",))
        while calls and not (loading.done() and loading.exception()):
            kinds = calls.popleft()
            if fixed and len(kinds) > 1:
                continue
            evaluation, inputs = _evaluate(examples, kinds, weights, deadline)
            if evaluation is None:
                # What one record of several may not be, others may.
                calls.extend((kind,) for kind in kinds if apart and len(kinds) > 1)
                continue
            if evaluation.count == len(graph.nodes):
                whole.append((evaluation, inputs, len(kinds) if apart else 1))
                continue
            if not whole:
                loading.result()
                part = _part(evaluation)
                verification.checked = (
                    f"the first {evaluation.count} of {len(graph.nodes)} operations, which the "
                    f"reference computed in {budget:.0f} seconds,"
                )
                session = Session(build_part(part), mapped=mapped)
                _compare(part, session, evaluation, inputs, weights, verification)
            break
        session = loading.result()
    for evaluation, inputs, records in whole:
        _compare(graph, session, evaluation, inputs, weights, verification, records)
    if not verification.runs:
        verification.checked = "nothing but that the file loads: the reference took no inputs"
    return verification


def _evaluate(
    examples: Examples,
    kinds: Sequence[str],
    weights: WeightReader,
    deadline: float,
) -> tuple[Evaluation | None, dict[str, Array]]:
    """The reference's evaluation, as far as it came in time, and its inputs; None for inputs that
    the model does not take."""
    while True:
        inputs = examples.draw(kinds)
        evaluation = Evaluation(examples.graph, inputs, weights)
        try:
            while evaluation.step() and time.monotonic() < deadline:
                pass
            return evaluation, inputs
        except SexpgpuError as error:
            # An index past the end of an axis.
            if error.code != "E-VALUE-001":
                raise
            if not examples.narrow():
                return None, inputs


def _bytes(value: Value) -> int:
    return elements(value.type.shape) * value.type.dtype.itemsize


def _part(evaluation: Evaluation) -> Graph:
    """What the reference had computed when its time was up, with the values that it still held."""
    whole = evaluation.graph
    nodes = whole.nodes[: evaluation.count]
    values = [v for node in nodes for v in node.results if v in evaluation]
    outputs: dict[str, Value] = {}
    for value in values:
        assert value.node is not None
        label = f"{value.node.scope}/{value.node.operation.name}".lstrip("/")
        outputs[f"{label}.{len(outputs)}"] = value
    return remove_dead(Graph(whole.inputs, whole.weights, nodes, outputs))


def _compare(
    graph: Graph,
    session: Session,
    evaluation: Evaluation,
    inputs: Mapping[str, Array],
    weights: WeightReader,
    verification: Verification,
    records: int = 1,
) -> None:
    """Compares every output of the graph, whose values the evaluation holds.

    Of several `records`, which stand along the first axis and do not meet, the first is run alone
    too, and each is compared by itself: what is plainly small is a share of its own largest number.
    """
    rounded = _Rounded(graph, inputs, weights)
    for count in sorted({1, records}):
        found = session.run({name: _first(array, count, records) for name, array in inputs.items()})
        verification.runs += 1
        for name, value in graph.outputs.items():
            kept = verification.outputs.setdefault(name, Difference())
            want = _first(evaluation[value], count, records)
            if records == 1 or found[name].shape != want.shape:
                kept.widen(compare(name, found[name], want, rounded.of(name)))
                continue
            for part in _slices(want, count):
                explained = (array[part] for array in rounded.of(name))
                kept.widen(compare(name, found[name][part], want[part], explained))


def _first(array: Array, count: int, records: int) -> Array:
    """So many records of those that stand along the first axis."""
    return array if count == records else array[: len(array) // records * count]


def _slices(array: Array, records: int) -> list[slice]:
    """Where each record stands along the first axis."""
    rows = len(array) // records
    return [slice(start, start + rows) for start in range(0, rows * records, rows)]


class _Rounded:
    """The outputs as errors of rounding could make them; evaluated when they are asked for."""

    def __init__(self, graph: Graph, inputs: Mapping[str, Array], weights: WeightReader) -> None:
        self._graph = graph
        self._inputs = inputs
        self._weights = weights
        self._evaluated: list[dict[str, Array]] = []

    def of(self, name: str) -> Iterator[Array]:
        for seed in range(_PERTURBATIONS):
            if seed == len(self._evaluated):
                evaluation = Perturbation(self._graph, self._inputs, self._weights, seed=seed)
                while evaluation.step():
                    pass
                self._evaluated.append(evaluation.outputs())
            yield self._evaluated[seed][name]
