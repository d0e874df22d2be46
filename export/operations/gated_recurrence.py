"""What layers with gates share: states that go along a sequence, from one step to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, INTEGERS, Array, Dimension, TensorType
from sexpgpu.export.operations.gated_lowering import GatedLowering
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, Fate, Rows
from sexpgpu.export.operations.products import PRECISION, factor
from sexpgpu.export.operations.rules import fail_shape, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, Signature, signature

#: What a state adds to some of the gates, from the first to before the last: its product with
#: their rows of `w-recurrent`, and their bias.
FromState: TypeAlias = Callable[[Array, int, int], list[Array]]


class GatedRecurrence(GatedLowering):
    """Gates of the step's input and of the state before it, and the state after it.

    A subclass says what GatedLowering needs, and one step.
    """

    family = "recurrence"
    constraints = (
        "`x` is [batch, time, in], with at least one position in time; only its first axis may be "
        "the batch.",
        "`w-input` is [gates · hidden, in] and `w-recurrent` [gates · hidden, hidden], none empty.",
        "`bias-input` and `bias-recurrent` are [gates · hidden].",
        "The initial state is [batch, hidden], as many records as `x` has; it is zero where none "
        "is given.",
        "`lengths` is [batch], i32 or i64.",
    )

    @abstractmethod
    def step(
        self,
        from_input: Sequence[Array],
        from_state: FromState,
        states: Sequence[Array],
        attributes: Attributes,
    ) -> list[Array]:
        """The next states, from what the input adds to each gate and what a state would add."""

    def infer(self, inputs: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        given = self.named(inputs, attributes)
        x, w, r = inputs[:3]
        if x.rank != 3 or w.rank != 2 or r.rank != 2:
            fail_shape(
                f"`{self.name}` takes a tensor [batch, time, in] and two matrices",
                came=f"{x}, {w} and {r}",
            )
        time, width = known(self.name, "the time", x.shape[1]), known(self.name, "in", x.shape[2])
        hidden = known(self.name, "the width of the state", r.shape[1])
        rows = self.gates * hidden
        if w.shape != (rows, width) or r.shape != (rows, hidden) or 0 in (width, hidden):
            fail_shape(
                f"the weights of `{self.name}` do not fit",
                came=f"{w} and {r}, for {x}",
                expected=f"[{rows}, {width}] and [{rows}, {hidden}], {self.gates} gates",
            )
        if time == 0:
            fail_shape(f"`{self.name}` has no position to read", came=str(x))
        wanted: dict[str, tuple[Dimension, ...]] = {
            "bias-input": (rows,),
            "bias-recurrent": (rows,),
            **dict.fromkeys(self.states, (x.shape[0], hidden)),
            "lengths": (x.shape[0],),
        }
        for name, shape in wanted.items():
            if name in given and given[name].shape != shape:
                fail_shape(
                    f"`{name}` of `{self.name}` does not fit",
                    came=str(given[name]),
                    expected=str(given[name].with_shape(shape)),
                )
        state = x.with_shape((x.shape[0], hidden))
        return [x.with_shape((x.shape[0], time, hidden)), *[state] * len(self.states)]

    def evaluate(self, inputs: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
        given = self.named(inputs, attributes)
        dtype = inputs[0].dtype
        x, w, r = (factor(array, attributes) for array in inputs[:3])
        biases = [
            given[name].astype(x.dtype) if name in given else np.zeros(len(w), x.dtype)
            for name in ("bias-input", "bias-recurrent")
        ]
        zero = np.zeros((len(x), r.shape[1]), x.dtype)
        states = [given[n].astype(x.dtype) if n in given else zero for n in self.states]
        hidden = r.shape[1]

        def from_state(state: Array, first: int, last: int) -> list[Array]:
            rows = slice(first * hidden, last * hidden)
            added = factor(state, attributes) @ r[rows].T + biases[1][rows]
            return np.split(added, last - first, -1)

        times = range(x.shape[1])
        sequence = np.empty((*x.shape[:2], hidden), x.dtype)
        for time in reversed(times) if attributes["reverse"] else times:
            from_input = np.split(x[:, time] @ w.T + biases[0], self.gates, -1)
            after = self.step(from_input, from_state, states, attributes)
            if "lengths" in given:
                is_read = (time < np.maximum(given["lengths"], 1))[:, None]
                sequence[:, time] = np.where(is_read, after[0], 0)
                states = [np.where(is_read, *pair) for pair in zip(after, states, strict=True)]
            else:
                sequence[:, time] = after[0]
                states = after
        return [array.astype(dtype) for array in (sequence, *states)]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        name = self.operand_names(attributes, len(inputs))[operand]
        if name in ("x", "lengths", *self.states) and axis == 0:
            return [Apart(0)] * len(results)
        finals: list[Fate] = [WHOLE] * len(self.states)
        if name == "x" and axis == 1 and not attributes["reverse"]:
            return [Causal(1), *finals]
        return [WHOLE, *finals]

    def restrict(self, rows: Rows, attributes: Attributes) -> None:
        # A position needs all before it.
        return None


def recurrence_signature(*states: str, attributes: Sequence[Attribute] = ()) -> Signature:
    optional = ("bias-input", "bias-recurrent", *states)
    return signature(
        Operand("x", FLOATS),
        Operand("w-input", FLOATS),
        Operand("w-recurrent", FLOATS),
        *(Operand(name, FLOATS, optional=True, keyword=True) for name in optional),
        Operand("lengths", INTEGERS, group="I", optional=True, keyword=True),
        Attribute("reverse", Kind.BOOLEAN, False),
        *attributes,
        PRECISION,
    )
