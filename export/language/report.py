"""What `check` finds out about a program: types, parameters, and how its model may be run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sexpgpu.export.graph.types import TensorType
from sexpgpu.export.language.alone import Alone, try_alone
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.program import Program, compile_program
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.language.training import trace_training
from sexpgpu.export.language.values import show
from sexpgpu.export.passes.independence import Verdict, prove_independence
from sexpgpu.schemas.errors import SexpgpuError


@dataclass
class Report:
    """A compiled program; `obstacle` says why its model cannot run alone, where it cannot."""

    program: Program
    alone: Alone | None
    obstacle: SexpgpuError | None
    independence: Verdict | None
    trains: bool
    metrics: list[str]
    parameters: dict[str, Parameter]
    inputs: dict[str, TensorType] = field(default_factory=dict)
    outputs: dict[str, TensorType] = field(default_factory=dict)

    @property
    def parameter_count(self) -> int:
        """How many numbers the parameters hold."""
        return sum(parameter.elements for parameter in self.parameters.values())

    @property
    def parameter_bytes(self) -> int:
        return sum(p.elements * p.type.dtype.itemsize for p in self.parameters.values())

    def knob_values(self) -> dict[str, object]:
        """Every knob's value as plain data."""
        return {name: plain_value(knob.value) for name, knob in self.program.knobs.items()}

    def knobs_shown(self) -> dict[str, str]:
        """Every knob's value as the language writes it."""
        return {name: show(knob.value) for name, knob in self.program.knobs.items()}

    def tree(self) -> list[str]:
        """The parameters as a tree of parts, with shapes and counts."""
        return _tree(self.parameters)


def report_on(path: Path, variant: str | None, overrides: Mapping[str, object]) -> Report:
    """Compiles a program and traces it in both modes.

    Raises SexpgpuError for whatever is wrong in it; that its model cannot run alone is no error.
    """
    program = compile_program(path, variant, overrides)
    alone, obstacle = try_alone(program)
    independence = None
    training = trace_training(program)
    metrics = [*training.names("metric"), *training.names("counter")] if training else []
    report = Report(
        program,
        alone,
        obstacle,
        independence,
        training is not None,
        metrics,
        program.parameters(),
    )
    if alone is not None:
        report.independence = prove_independence(alone.graph)
        report.inputs = {value.name: value.type for value in alone.graph.inputs}
        report.outputs = {name: value.type for name, value in alone.graph.outputs.items()}
    return report


def plain_value(value: object) -> object:
    """A knob's value as JSON has it: a keyword as `:name`, a list as a list."""
    if isinstance(value, Keyword):
        return f":{value.name}"
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _tree(parameters: Mapping[str, Parameter]) -> list[str]:
    """A line for each parameter, and for each part that holds several a line with its count."""
    rows: list[tuple[str, str]] = []
    totals: dict[str, int] = {}
    for path, parameter in parameters.items():
        parts = path.split(".")
        for depth in range(1, len(parts)):
            prefix = ".".join(parts[:depth])
            totals[prefix] = totals.get(prefix, 0) + parameter.elements
    shown: set[str] = set()
    for path, parameter in parameters.items():
        parts = path.split(".")
        for depth in range(1, len(parts)):
            prefix = ".".join(parts[:depth])
            if prefix not in shown:
                shown.add(prefix)
                rows.append(("  " * depth + parts[depth - 1], f"{totals[prefix]:,}"))
        notes = " frozen" if parameter.frozen else ""
        notes += f" from {parameter.load}" if parameter.load else ""
        text = f"{parameter.elements:,}  {parameter.type}{notes}"
        rows.append(("  " * len(parts) + parts[-1], text))
    width = max(len(name) for name, _ in rows)
    return [f"  {name:<{width}}  {text}" for name, text in rows]
