"""What layers with gates share: states that go along a sequence, from one step to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, Array, Dimension, DType, TensorType
from sexpgpu.export.onnx.loop import add_scan
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.operation import (
    WHOLE,
    Apart,
    Causal,
    Fate,
    Operation,
    Rows,
)
from sexpgpu.export.operations.products import (
    PRECISION,
    factor,
    is_rounded,
    multiply,
    round_operand,
)
from sexpgpu.export.operations.rules import fail_shape, known
from sexpgpu.export.operations.signature import Attribute, Kind, Operand, Signature, signature


class GatedRecurrence(Operation):
    """Gates of the step's input and of the state before it, and the state after it.

    A subclass says which states go along (the first is `h`, which is also the result of every
    step), how many gates there are and in which order ONNX has them, and one step.
    """

    family = "recurrence"
    constraints = (
        "`x` is [batch, time, in], with at least one position in time; only its first axis may be "
        "the batch.",
        "`w-input` is [gates · hidden, in] and `w-recurrent` [gates · hidden, hidden], none empty.",
        "`bias-input` and `bias-recurrent` are [gates · hidden].",
        "The initial state is [batch, hidden], as many records as `x` has; it is zero where none "
        "is given.",
    )

    states: ClassVar[tuple[str, ...]]
    gates: ClassVar[int]
    onnx_gates: ClassVar[tuple[int, ...]]
    onnx_operator: ClassVar[str]
    #: Whether GRU's reset gate comes after the product; LSTM has no such attribute.
    linear_before_reset: ClassVar[int | None] = None

    @abstractmethod
    def step(
        self, from_input: Sequence[Array], from_state: Sequence[Array], states: Sequence[Array]
    ) -> list[Array]:
        """The next states, from what input and state add to each gate."""

    @abstractmethod
    def lower_step(
        self, from_input: Sequence[Term], from_state: Sequence[Term], states: Sequence[Term]
    ) -> list[Term]:
        """The same in ONNX."""

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
        }
        for name, shape in wanted.items():
            if name in given and given[name].shape != shape:
                fail_shape(
                    f"`{name}` of `{self.name}` does not fit",
                    came=str(given[name]),
                    expected=str(x.with_shape(shape)),
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
        times = range(x.shape[1])
        sequence = np.empty((*x.shape[:2], r.shape[1]), x.dtype)
        for time in reversed(times) if attributes["reverse"] else times:
            from_input = x[:, time] @ w.T + biases[0]
            from_state = factor(states[0], attributes) @ r.T + biases[1]
            states = self.step(
                np.split(from_input, self.gates, -1), np.split(from_state, self.gates, -1), states
            )
            sequence[:, time] = states[0]
        return [array.astype(dtype) for array in (sequence, *states)]

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        given: dict[str, OnnxValue] = self.named(inputs, attributes)
        if inputs[0].dtype is DType.F64 or is_rounded(attributes, inputs[0].dtype):
            return self._lower_by_steps(onnx, given, attributes, results)
        hidden = given["w-recurrent"].shape[1]
        assert isinstance(hidden, int)
        operands = [onnx.add("Transpose", given["x"].name, perm=[1, 0, 2])]
        operands += [self._reordered(onnx, given[n], hidden) for n in ("w-input", "w-recurrent")]
        biases = [given.get(name) for name in ("bias-input", "bias-recurrent")]
        if any(biases):
            zero = onnx.constant(np.zeros((1, self.gates * hidden), np.float32))
            parts = [self._reordered(onnx, b, hidden) if b else zero for b in biases]
            operands.append(onnx.add("Concat", *parts, axis=-1))
        else:
            operands.append("")
        # No lengths: every record has all positions.
        operands.append("")
        for name in self.states:
            known_state = name in given
            operands.append(
                onnx.add("Unsqueeze", given[name].name, onnx.ints([0])) if known_state else ""
            )
        sequence, *finals = onnx.add(
            self.onnx_operator,
            *operands,
            outputs=1 + len(self.states),
            hidden_size=hidden,
            direction="reverse" if attributes["reverse"] else None,
            linear_before_reset=self.linear_before_reset,
        )
        # [time, direction, batch, hidden]
        sequence = onnx.add("Squeeze", sequence, onnx.ints([1]))
        sequence = onnx.add("Transpose", sequence, perm=[1, 0, 2])
        return [sequence, *(onnx.add("Squeeze", name, onnx.ints([0])) for name in finals)]

    def _reordered(self, onnx: Lowering, value: OnnxValue, hidden: int) -> str:
        """A weight or bias, its gates in ONNX's order, with an axis of one direction."""
        sizes = onnx.ints([hidden] * self.gates)
        parts = onnx.add("Split", value.name, sizes, outputs=self.gates, axis=0)
        ordered = onnx.add("Concat", *(parts[gate] for gate in self.onnx_gates), axis=0)
        return onnx.add("Unsqueeze", ordered, onnx.ints([0]))

    def _lower_by_steps(
        self,
        onnx: Lowering,
        given: dict[str, OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> list[str]:
        """A Scan over the steps, after the products of all inputs at once."""
        x, r = given["x"], given["w-recurrent"]
        hidden = r.shape[1]
        assert isinstance(hidden, int)
        rounded = is_rounded(attributes, x.dtype)
        turned = onnx.add("Transpose", given["w-input"].name, perm=[1, 0])
        projected = multiply(onnx, "MatMul", x.name, turned, rounded=rounded)
        if "bias-input" in given:
            projected = onnx.add("Add", projected, given["bias-input"].name)
        recurrent = onnx.add("Transpose", r.name, perm=[1, 0])
        if rounded:
            narrow = onnx.native_bf16
            recurrent = (
                onnx.cast(recurrent, DType.BF16) if narrow else round_operand(onnx, recurrent)
            )
        sizes = onnx.ints([hidden] * self.gates)

        def product(h: str) -> str:
            if rounded and onnx.native_bf16:
                narrow = onnx.add("MatMul", onnx.cast(h, DType.BF16), recurrent)
                return onnx.cast(narrow, DType.F32)
            return onnx.add("MatMul", round_operand(onnx, h) if rounded else h, recurrent)

        def gates(name: str) -> list[Term]:
            parts = onnx.add("Split", name, sizes, outputs=self.gates, axis=-1)
            return [Term(onnx, part, x.dtype) for part in parts]

        def step(
            carries: list[OnnxValue], slices: list[OnnxValue]
        ) -> tuple[Sequence[str], Sequence[str]]:
            before = [Term.of(onnx, value) for value in carries]
            from_state = product(before[0].name)
            if "bias-recurrent" in given:
                from_state = onnx.add("Add", from_state, given["bias-recurrent"].name)
            after = self.lower_step(gates(slices[0].name), gates(from_state), before)
            names = [term.name for term in after]
            return names, names[:1]

        state = results[1]
        zero = ""
        if any(name not in given for name in self.states):
            nothing = onnx.constant(np.zeros((1, 1), x.dtype.numpy))
            zero = onnx.add("Expand", nothing, onnx.shape(state.shape))
        first = [given[name] if name in given else OnnxValue(zero, state) for name in self.states]
        wide = x.type.with_shape((*x.shape[:2], self.gates * hidden))
        *finals, sequence = add_scan(
            onnx,
            first,
            [OnnxValue(projected, wide)],
            step,
            [state],
            axis=1,
            reverse=attributes["reverse"],
        )
        return [sequence, *finals]

    def axis_rule(
        self,
        operand: int,
        axis: int,
        inputs: Sequence[TensorType],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[Fate]:
        name = self.operand_names(attributes, len(inputs))[operand]
        if name in ("x", *self.states) and axis == 0:
            return [Apart(0)] * len(results)
        finals: list[Fate] = [WHOLE] * len(self.states)
        if name == "x" and axis == 1 and not attributes["reverse"]:
            return [Causal(1), *finals]
        return [WHOLE, *finals]

    def restrict(self, rows: Rows, attributes: Attributes) -> None:
        # A position needs all before it.
        return None


def recurrence_signature(*states: str) -> Signature:
    optional = ("bias-input", "bias-recurrent", *states)
    return signature(
        Operand("x", FLOATS),
        Operand("w-input", FLOATS),
        Operand("w-recurrent", FLOATS),
        *(Operand(name, FLOATS, optional=True, keyword=True) for name in optional),
        Attribute("reverse", Kind.BOOLEAN, False),
        PRECISION,
    )
