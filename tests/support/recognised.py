"""Programs of examples/ that people know: exported, run, and held against the code of others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.axes import State, trace_axes
from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Array
from sexpgpu.export.initial import first_value
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.language.recording import record, record_model
from sexpgpu.export.onnx.examples import Examples
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.operations.operation import Apart, Causal
from sexpgpu.export.subject import Subject
from support.real import EXAMPLES, relative_difference

#: What the f32 export may differ from an independent implementation, of the largest magnitude.
TOLERANCE = 1e-4
#: A product's operands have 8 bits in bf16; what a deep model adds up of that is a few times more.
BF16_TOLERANCE = 2.0**-4


class Recognised:
    """An example under knobs, with weights that tell every parameter apart.

    A parameter that is read from a file keeps what the file holds. Others are drawn anew, around
    what the program says they begin as: a bias that begins as zero would hide where it goes.
    """

    def __init__(
        self, name: str, directory: Path, *, variant: str | None = None, **knobs: object
    ) -> None:
        self.directory = directory
        self._program = compile_program(EXAMPLES / f"{name}.sx", variant, knobs)
        self._alone = trace_alone(self._program)
        self.model = record_model(self._alone, record(self._program, 0))
        self._sessions: dict[str, Session] = {}

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Every parameter of the model alone by its path."""
        generator = np.random.default_rng(7)
        weights = {}
        for path, parameter in self._alone.parameters.items():
            value = first_value(parameter, 0)
            if parameter.load is None and parameter.type.dtype.is_float:
                drawn = generator.standard_normal(value.shape) * 0.1
                drawn = np.abs(drawn) if path.endswith("variance") else drawn
                value = np.asarray(value + drawn * (value.std() * 2 or 1), value.dtype)
            weights[path] = value
        return weights

    def sharpen(self, factor: float, *endings: str) -> None:
        """Make some weights larger, before anything is exported.

        Of small queries and keys every position is as good as any other, and a test sees little
        of what is done to them.
        """
        for path in self.weights:
            if path.endswith(endings):
                self.weights[path] *= np.asarray(factor, self.weights[path].dtype)

    def inputs(self, records: int) -> dict[str, Array]:
        """Random inputs, whole numbers within what they index."""
        return Examples(self.model.graph).draw(("random",) * records)

    def session(self, **options: Any) -> Session:
        """ONNX Runtime's session of an export with these options, verified as every export is."""
        key = "-".join(f"{name}={value}" for name, value in sorted(options.items())) or "plain"
        if key not in self._sessions:
            subject = Subject(self.model, self.weights.__getitem__, "an example")
            export_model(subject, self.directory / key, ExportOptions(**options))
            self._sessions[key] = Session(self.directory / key / "model.onnx")
        return self._sessions[key]

    def run(self, inputs: Mapping[str, Array], **options: Any) -> dict[str, Array]:
        """What the export gives."""
        return self.session(**options).run(inputs)

    def check_bf16(
        self,
        inputs: Mapping[str, Array],
        at_most: float = BF16_TOLERANCE,
        rows: Any = slice(None),
    ) -> None:
        """Its products in bf16 give other numbers than in f32, and near them, in these rows."""
        exact, found = self.run(inputs), self.run(inputs, precision="bf16")
        floats = [name for name, array in exact.items() if array.dtype.kind == "f"]
        differences = [relative_difference(found[name][rows], exact[name][rows]) for name in floats]
        assert 0 < max(differences) < at_most, differences

    def check_causal(self) -> None:
        """The axis rules prove that a position of the outputs reads none after it."""
        graph = self.model.graph
        starts: dict[Value, State] = {value: Apart(1) for value in graph.inputs}
        states = trace_axes(graph, starts, causal=True)
        assert {states[value] for value in graph.outputs.values()} == {Causal(1)}

    def check_at(self, inputs: Mapping[str, Array], positions: list[int]) -> None:
        """Of a causal model the gather gives the bits of the whole window at each position."""
        whole = self.run(inputs)
        for position in positions:
            for index in range(len(next(iter(inputs.values())))):
                one = {name: array[[index]] for name, array in inputs.items()}
                rows = self.run({**one, "at": np.array([position], np.int32)}, at=True)
                alone = self.run(one)
                for name, row in rows.items():
                    np.testing.assert_array_equal(row[0, 0], alone[name][0, position])
                    assert relative_difference(row[0, 0], whole[name][index, position]) < 1e-5
