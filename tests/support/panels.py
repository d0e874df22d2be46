"""The samples of one operation and dtype in one graph, so that one session runs them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sexpgpu.export.graph.axes import State, batch_axes, trace_axes
from sexpgpu.export.graph.graph import Graph, Node, Value
from sexpgpu.export.graph.reference import evaluate_node
from sexpgpu.export.graph.types import Array, Dimension, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import Apart
from support.harness import open_session, run_session
from support.samples import B, Sample, graph_of

#: An input that has the batch, for samples of which no operand has it.
_RECORDS = "records"


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A sample in a panel: its node, whose values are called `label.x0`, …, `label.y0`, …."""

    sample: Sample
    node: Node
    label: str = ""

    @classmethod
    def of(cls, sample: Sample, dtype: DType) -> Entry:
        """A sample with its batch symbolic, by itself."""
        return cls(sample, sample.node(dtype))

    @property
    def is_apart(self) -> bool:
        """Whether no record meets another in any result, by the axis rules."""
        return all(state is None or isinstance(state, Apart) for state in self.states())

    def states(self) -> list[State]:
        """Where the batch is in each of the results, by the axis rules."""
        starts: dict[Value, State] = {
            value: Apart(axes[0]) for value in self.node.inputs if (axes := batch_axes(value.type))
        }
        states = trace_axes(graph_of(self.node), starts, batch=True)
        return [states[value] for value in self.node.results]

    @property
    def has_records(self) -> bool:
        """Whether an operand has the batch."""
        return any(axis is not None for axis in self.sample.batch_axes)

    def output(self, index: int) -> str:
        return f"{self.label}.y{index}"


class Panel:
    """Samples side by side, their batch symbolic, or a fixed number of records."""

    def __init__(self, samples: Sequence[Sample], dtype: DType, batch: Dimension = B) -> None:
        self.dtype = dtype
        self.batch = batch
        self.entries = [
            Entry(sample, sample.node(dtype, batch), f"s{number}")
            for number, sample in enumerate(samples)
        ]

    def session(self, options: BuildOptions) -> Any:
        """A session of ONNX Runtime on the whole panel."""
        inputs = [Value(TensorType(DType.F32, (self.batch,)), name=_RECORDS)]
        outputs: dict[str, Value] = {}
        for entry in self.entries:
            for index, value in enumerate(entry.node.inputs):
                value.name = f"{entry.label}.x{index}"
                inputs.append(value)
            outputs |= {entry.output(i): value for i, value in enumerate(entry.node.results)}
        graph = Graph(inputs=inputs, nodes=[e.node for e in self.entries], outputs=outputs)
        return open_session(build_model(graph, dict[str, Array]().__getitem__, options))

    def run(
        self, session: Any, records: int, arrays: Callable[[Entry], Sequence[Array]]
    ) -> dict[Entry, list[Array]]:
        """What each sample gives for the operands that `arrays` has for it."""
        feeds: dict[str, Array] = {_RECORDS: np.zeros(records, np.float32)}
        for entry in self.entries:
            named = enumerate(arrays(entry))
            feeds |= {f"{entry.label}.x{index}": array for index, array in named}
        outputs = run_session(session, feeds)
        return {
            entry: [outputs[entry.output(i)] for i in range(len(entry.node.results))]
            for entry in self.entries
        }

    def reference(self, entry: Entry, records: int) -> list[Array]:
        """What a sample gives by its meaning in NumPy."""
        return evaluate_node(entry.node, entry.sample.arrays(self.dtype, records), records)
