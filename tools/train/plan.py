"""What a run will do: its program compiled, traced and checked before anything is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.language.alone import Alone, try_alone
from sexpgpu.export.language.program import Program, compile_program
from sexpgpu.export.language.run import Run
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.language.training import LOSS, Training, trace_evaluation, trace_training
from sexpgpu.schemas.errors import SexpgpuError

#: Of a run that does not say.
_CHECKPOINT_EVERY = 1000


@dataclass(frozen=True)
class Plan:
    """A run, ready to begin.

    `trained` are the parameters that it changes, by path: floats that are not frozen and that the
    loss depends on.  `alone` is the model alone, None where `obstacle` says why there is none.
    """

    program: Program
    run: Run
    training: Training
    evaluation: Training
    trained: dict[str, Parameter]
    alone: Alone | None
    obstacle: SexpgpuError | None

    @property
    def checkpoint_every(self) -> int:
        return self.run.checkpoint_every or _CHECKPOINT_EVERY

    @property
    def evaluate_every(self) -> int | None:
        """None where there is nothing to evaluate on; else as often as there are checkpoints."""
        return None if self.run.eval is None else self.run.evaluate_every or self.checkpoint_every

    @property
    def rest(self) -> dict[str, Parameter]:
        """The parameters that the run does not change."""
        return {p: v for p, v in self.program.parameters().items() if p not in self.trained}


def make_plan(
    path: Path, variant: str | None, knobs: Mapping[str, object] | None, steps: int | None
) -> Plan:
    """Compiles a file for its run.

    `steps` goes before the run's own.  Raises E-RUN-005 where there is nothing to train, and
    whatever is wrong in the file; that its model cannot run alone is no error.
    """
    program = compile_program(path, variant, knobs)
    if program.run is None:
        raise SexpgpuError(
            "E-RUN-005",
            f"{path} says nowhere how its model is trained",
            place=str(path),
            expected="(defrun :train train :steps 1000 :batch 32 :optimizer (adamw :lr 1e-3))",
        )
    training, evaluation = trace_training(program), trace_evaluation(program)
    if training is None or evaluation is None:
        raise SexpgpuError(
            "E-RUN-005",
            f"{path} has no `loss` to make smaller",
            place=str(path),
            expected="(defn loss (prediction prepared) …): a scalar tensor",
        )
    moved = _moved_by(training)
    trained = {
        name: parameter
        for name, parameter in training.parameters.items()
        if parameter.value in moved and parameter.type.dtype.is_float and not parameter.frozen
    }
    if not trained:
        raise SexpgpuError(
            "E-RUN-005",
            "the loss depends on no parameter that could be trained",
            span=program.span_of("loss"),
            came="parameters that are frozen, no floats or behind `stop-gradient`: "
            + ", ".join(training.parameters)
            if training.parameters
            else "no parameter",
        )
    alone, obstacle = try_alone(program)
    run = program.run if steps is None else dataclasses.replace(program.run, steps=steps)
    return Plan(program, run, training, evaluation, trained, alone, obstacle)


def _moved_by(training: Training) -> set[Value]:
    """The values that the gradient of the loss comes to."""
    found: set[Value] = set()
    waiting = [training.graph.outputs[f"metric:{LOSS}"]]
    while waiting:
        value = waiting.pop()
        node = value.node
        if value not in found and (node is None or node.operation.name != "stop-gradient"):
            waiting += node.inputs if node else ()
        found.add(value)
    return found
