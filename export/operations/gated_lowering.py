"""What layers with gates become in ONNX: its own operators, or a Scan of the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.onnx.loop import add_scan
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.operation import Operation
from sexpgpu.export.operations.products import is_rounded, multiply, round_operand

#: As FromState of gated_recurrence.
LoweredFromState: TypeAlias = Callable[[Term, int, int], list[Term]]

_HOLD = 1e6
"""The sigmoid of it is 1, and that of its negative 0, whatever else is added."""


class GatedLowering(Operation):
    """A subclass says which states go along (the first is `h`, which is also the result of every
    step), how many gates there are and in which order ONNX has them, and one step."""

    states: ClassVar[tuple[str, ...]]
    gates: ClassVar[int]
    onnx_gates: ClassVar[tuple[int, ...]]
    onnx_operator: ClassVar[str]
    #: What keeps the states: for each gate 1 where it is open, -1 where it is closed.
    hold: ClassVar[tuple[int, ...]]
    #: Whether `h` is kept as well, and not only what it is made of.
    holds_all: ClassVar[bool]

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

    def lower(
        self,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        given: dict[str, OnnxValue] = self.named(inputs, attributes)
        # What does not hold all would begin at the last position with an h of zeros.
        loses = {"h", "lengths"} <= given.keys() and attributes["reverse"] and not self.holds_all
        wide, rounded = inputs[0].dtype is DType.F64, is_rounded(attributes, inputs[0].dtype)
        if loses or wide or rounded or onnx.unroll:
            return self._lower_by_steps(onnx, given, attributes, results)
        return self._lower_natively(onnx, given, attributes, results)

    def _lower_natively(
        self,
        onnx: Lowering,
        given: dict[str, OnnxValue],
        attributes: Attributes,
        results: Sequence[TensorType],
    ) -> list[str]:
        hidden = given["w-recurrent"].shape[1]
        assert isinstance(hidden, int)
        is_read = None
        if "lengths" in given:
            is_read = self._is_read(onnx, given["lengths"], given["x"].type)
            given = self._holding(onnx, given, is_read)
        time = given["x"].shape[1]
        assert isinstance(time, int)

        def along(name: str) -> str:
            """Times in the order of the steps, which is its own inverse.

            The operator's own direction is wrong in tract and OpenVINO, and IREE has none.
            """
            if not attributes["reverse"]:
                return name
            return onnx.add("Gather", name, onnx.ints([*reversed(range(time))]), axis=0)

        operands = [along(onnx.add("Transpose", given["x"].name, perm=[1, 0, 2]))]
        operands += [self._reordered(onnx, given[n], hidden) for n in ("w-input", "w-recurrent")]
        biases = [given.get(name) for name in ("bias-input", "bias-recurrent")]
        if any(biases):
            zero = onnx.constant(np.zeros((1, self.gates * hidden), np.float32))
            parts = [self._reordered(onnx, b, hidden) if b else zero for b in biases]
            operands.append(onnx.add("Concat", *parts, axis=-1))
        else:
            operands.append("")
        operands.append("")  # no lengths
        operands += [self._first(onnx, given.get(name), results[1]) for name in self.states]
        sequence, *finals = onnx.add(
            self.onnx_operator,
            *operands,
            outputs=1 + len(self.states),
            hidden_size=hidden,
            **self.onnx_attributes(attributes),
        )
        # [time, direction, batch, hidden]
        sequence = along(onnx.add("Squeeze", sequence, onnx.ints([1])))
        sequence = onnx.add("Transpose", sequence, perm=[1, 0, 2])
        finals = [onnx.add("Squeeze", name, onnx.ints([0])) for name in finals]
        if is_read is None:
            return [sequence, *finals]
        made = is_read.where(Term(onnx, sequence, DType.F32), 0)
        if not self.holds_all and not attributes["reverse"]:
            finals[0] = self._last(onnx, made, given["lengths"], given["x"].type)
        return [made.name, *finals]

    def _holding(
        self, onnx: Lowering, given: dict[str, OnnxValue], is_read: Term
    ) -> dict[str, OnnxValue]:
        """Operands under which the states stay as they are where a record has no position.

        Runtimes ignore the operator's own lengths (OpenVINO and onnx's evaluator), or know none
        that are computed (tract, IREE).  So x has one column more, which is 1 at those positions,
        and its weights open and close the gates.
        """
        x, w = given["x"], given["w-input"]
        rows, width = w.shape
        hidden = given["w-recurrent"].shape[1]
        assert isinstance(width, int)
        assert isinstance(hidden, int)
        column = np.repeat(np.array(self.hold, np.float32) * _HOLD, hidden)[:, None]
        away = (~is_read).cast(DType.F32)
        read = is_read.where(Term.of(onnx, x), 0)
        wide_x = onnx.add("Concat", read.name, away.name, axis=-1)
        wide_w = onnx.add("Concat", w.name, onnx.constant(column), axis=-1)
        return {
            **given,
            "x": OnnxValue(wide_x, x.type.with_shape((*x.shape[:2], width + 1))),
            "w-input": OnnxValue(wide_w, w.type.with_shape((rows, width + 1))),
        }

    def _last(self, onnx: Lowering, sequence: Term, lengths: OnnxValue, x: TensorType) -> str:
        """Of each record what stands at its last position."""
        time = x.shape[1]
        assert isinstance(time, int)
        places = onnx.constant(np.arange(1, time + 1, dtype=np.int32).reshape(1, -1, 1))
        ends = onnx.add("Unsqueeze", self._clipped(onnx, lengths, x), onnx.ints([1, 2]))
        is_last = Term(onnx, onnx.add("Equal", places, ends), DType.BOOL)
        return onnx.add("ReduceSum", is_last.where(sequence, 0).name, onnx.ints([1]), keepdims=0)

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
        """The lengths, i32, of positions that there are."""
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
            is_read = self._is_read(onnx, given["lengths"], x.type)
            read = TensorType(DType.BOOL, (*x.shape[:2], 1))
            sequences.append(OnnxValue(is_read.name, read))
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

    def _is_read(self, onnx: Lowering, lengths: OnnxValue, x: TensorType) -> Term:
        """Whether a record has a position, [batch, time, 1]."""
        time = x.shape[1]
        assert isinstance(time, int)
        positions = np.arange(time, dtype=np.int32).reshape(1, -1, 1)
        ends = onnx.add("Unsqueeze", self._clipped(onnx, lengths, x), onnx.ints([1, 2]))
        return Term(onnx, onnx.add("Less", onnx.constant(positions), ends), DType.BOOL)
