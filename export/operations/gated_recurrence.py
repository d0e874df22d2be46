"""What layers with gates share: states that go along a sequence, from one step to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import FLOATS, INTEGERS, Array, Dimension, DType, TensorType
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

#: What a state adds to some of the gates, from the first to before the last: its product with
#: their rows of `w-recurrent`, and their bias.
FromState: TypeAlias = Callable[[Array, int, int], list[Array]]
LoweredFromState: TypeAlias = Callable[[Term, int, int], list[Term]]


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
        "`lengths` is [batch], i32 or i64.",
    )

    states: ClassVar[tuple[str, ...]]
    gates: ClassVar[int]
    onnx_gates: ClassVar[tuple[int, ...]]
    onnx_operator: ClassVar[str]

    @abstractmethod
    def step(
        self,
        from_input: Sequence[Array],
        from_state: FromState,
        states: Sequence[Array],
        attributes: Attributes,
    ) -> list[Array]:
        """The next states, from what the input adds to each gate and what a state would add."""

    @abstractmethod
    def lower_step(
        self,
        from_input: Sequence[Term],
        from_state: LoweredFromState,
        states: Sequence[Term],
        attributes: Attributes,
    ) -> list[Term]:
        """The same in ONNX."""

    def onnx_attributes(self, attributes: Attributes) -> dict[str, Any]:
        """What ONNX's operator is told besides its size and direction."""
        return {}

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

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        given: dict[str, OnnxValue] = self.named(inputs, attributes)
        wide = inputs[0].dtype is DType.F64
        if wide or onnx.unroll or is_rounded(attributes, inputs[0].dtype):
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
        lengths = given.get("lengths")
        operands.append(self._clipped(onnx, lengths, given["x"].type) if lengths else "")
        operands += [self._first(onnx, given.get(name), results[1]) for name in self.states]
        sequence, *finals = onnx.add(
            self.onnx_operator,
            *operands,
            outputs=1 + len(self.states),
            hidden_size=hidden,
            direction="reverse" if attributes["reverse"] else None,
            **self.onnx_attributes(attributes),
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

    def _first(self, onnx: Lowering, state: OnnxValue | None, type: TensorType) -> str:
        """The state before the first step, with an axis of one direction.

        What is zero is said: of a batch that is a symbol tract makes no zeros by itself.
        """
        if state is not None:
            return onnx.add("Unsqueeze", state.name, onnx.ints([0]))
        if isinstance(type.shape[0], int):
            return ""
        zero = onnx.constant(np.zeros((1, 1, 1), type.dtype.numpy))
        return onnx.add("Expand", zero, onnx.shape((1, *type.shape)))

    def _clipped(self, onnx: Lowering, lengths: OnnxValue, x: TensorType) -> str:
        """The lengths as ONNX wants them: i32, of positions that there are.

        One at least: runtimes give zeros for a record of none, and not its first state.
        """
        bounds = (onnx.constant(np.asarray(n, lengths.dtype.numpy)) for n in (1, x.shape[1]))
        return onnx.cast(onnx.add("Clip", lengths.name, *bounds), DType.I32)

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
        recurrent, dtype = onnx.add("Transpose", r.name, perm=[1, 0]), r.dtype
        if rounded and onnx.native_bf16:
            recurrent, dtype = onnx.cast(recurrent, DType.BF16), DType.BF16
        elif rounded:
            recurrent = round_operand(onnx, recurrent)

        def product(h: str, matrix: str) -> str:
            if rounded and onnx.native_bf16:
                narrow = onnx.add("MatMul", onnx.cast(h, DType.BF16), matrix)
                return onnx.cast(narrow, DType.F32)
            return onnx.add("MatMul", round_operand(onnx, h) if rounded else h, matrix)

        def columns(name: str, first: int, last: int) -> str:
            if (first, last) == (0, self.gates):
                return name
            ends = (onnx.ints([gate * hidden]) for gate in (first, last))
            return onnx.add("Slice", name, *ends, onnx.ints([-1]))

        def split(name: str, count: int) -> list[Term]:
            if count == 1:
                return [Term(onnx, name, x.dtype)]
            parts = onnx.add("Split", name, onnx.ints([hidden] * count), outputs=count, axis=-1)
            return [Term(onnx, part, x.dtype) for part in parts]

        def step(
            carries: list[OnnxValue], slices: list[OnnxValue], reads: list[OnnxValue]
        ) -> tuple[Sequence[str], Sequence[str]]:
            matrix, *biases = (value.name for value in reads)

            def from_state(state: Term, first: int, last: int) -> list[Term]:
                added = product(state.name, columns(matrix, first, last))
                for bias in biases:
                    added = onnx.add("Add", added, columns(bias, first, last))
                return split(added, last - first)

            before = [Term.of(onnx, value) for value in carries]
            from_input = split(slices[0].name, self.gates)
            after = self.lower_step(from_input, from_state, before, attributes)
            if len(slices) == 1:
                names = [term.name for term in after]
                return names, names[:1]
            is_read = Term.of(onnx, slices[1])
            made = is_read.where(after[0], 0)
            kept = [is_read.where(*pair) for pair in zip(after, before, strict=True)]
            return [term.name for term in kept], [made.name]

        state = results[1]
        zero = ""
        if any(name not in given for name in self.states):
            nothing = onnx.constant(np.zeros((1, 1), x.dtype.numpy))
            zero = onnx.add("Expand", nothing, onnx.shape(state.shape))
        first = [given[name] if name in given else OnnxValue(zero, state) for name in self.states]
        wide = x.type.with_shape((*x.shape[:2], self.gates * hidden))
        sequences = [OnnxValue(projected, wide)]
        if "lengths" in given:
            sequences.append(self._is_read(onnx, given["lengths"], x.type))
        reads = [OnnxValue(recurrent, TensorType(dtype, (hidden, self.gates * hidden)))]
        reads += [given[name] for name in ("bias-recurrent",) if name in given]
        *finals, sequence = add_scan(
            onnx,
            first,
            sequences,
            step,
            [state],
            axis=1,
            reverse=attributes["reverse"],
            reads=reads,
        )
        return [sequence, *finals]

    def _is_read(self, onnx: Lowering, lengths: OnnxValue, x: TensorType) -> OnnxValue:
        """Whether a record has a position, [batch, time, 1]."""
        time = x.shape[1]
        assert isinstance(time, int)
        positions = np.arange(time, dtype=np.int32).reshape(1, -1, 1)
        ends = onnx.add("Unsqueeze", self._clipped(onnx, lengths, x), onnx.ints([1, 2]))
        name = onnx.add("Less", onnx.constant(positions), ends)
        return OnnxValue(name, TensorType(DType.BOOL, (x.shape[0], time, 1)))

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
