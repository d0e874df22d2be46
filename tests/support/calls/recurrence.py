"""Calls of lstm, gru and scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Dimension, DType, TensorType
from sexpgpu.export.operations.operation import all_operations
from support.samples import B, Sample, Tensor, booleans, call, numbers, whole

GATES = {"lstm": 4, "gru": 3}
NUMBERS = [dtype for dtype in DType if dtype is not DType.BOOL]


def samples() -> Iterator[Sample]:
    for name, gates in GATES.items():
        x, w, r = numbers(B, 4, 3), numbers(gates * 2, 3), numbers(gates * 2, 2)
        bias, state = numbers(gates * 2), numbers(B, 2)
        states = ("h", "c") if name == "lstm" else ("h",)
        for precision in ("f32", "bf16"):
            yield call(name, x, w, r, precision=precision)
            yield call(name, x, w, r, reverse=True, precision=precision)
            yield call(
                name,
                *(x, w, r, bias, bias, *[state] * len(states)),
                given=("bias-input", "bias-recurrent", *states),
                precision=precision,
            )
        for reverse, dtype in ((False, DType.I32), (True, DType.I64)):
            lengths = whole(0, 6, B, dtype=dtype)
            yield call(name, x, w, r, lengths, given=("lengths",), reverse=reverse)
        if name == "gru":
            options = {"given": ("bias-recurrent", "h", "lengths"), "reset-after": False}
            yield call(name, x, w, r, bias, state, whole(0, 6, B), **options)
            yield call(name, x, w, r, precision="bf16", reverse=True, **{"reset-after": False})
        for given, operand in (("bias-input", bias), ("bias-recurrent", bias), (states[-1], state)):
            yield call(name, x, w, r, operand, given=(given,))

    carry, steps = numbers(B, 3), numbers(B, 4, 3)
    total = body(_total, carry, carry)
    for reverse in (False, True):
        yield scan(total, carry, steps, axis=1, carries=1, reverse=reverse, dtypes=NUMBERS)
    yield scan(total, carry, numbers(4, B, 3), axis=0, carries=1, dtypes=NUMBERS)
    yield scan(total, carry, numbers(B, 0, 3), axis=1, carries=1, dtypes=NUMBERS)
    moved = body(_moved, carry)
    yield scan(moved, steps, axis=1, carries=0)
    yield scan(moved, numbers(4, B, 3), axis=0, carries=0, reverse=True)
    yield scan(
        body(_counted, whole(0, 9), carry, booleans(B, 1), carry, numbers(3, 3)),
        *(whole(0, 9), carry, booleans(4, B, 1), numbers(4, B, 3), numbers(3, 3)),
        axis=0,
        carries=2,
        sequences=2,
        dtypes=(DType.F32, DType.F64, DType.BF16),
    )


def scan(
    graph: Callable[[DType, Dimension], Graph], *tensors: Tensor, sequences: int = 1, **options: Any
) -> Sample:
    dtypes = options.pop("dtypes", list(DType))
    return call("scan", *tensors, dtypes=dtypes, body=graph, sequences=sequences, **options)


class Body:
    """A body that is being written: operations by name."""

    def __init__(self, types: list[TensorType]) -> None:
        self.graph = Graph(inputs=[Value(type, name=f"in{i}") for i, type in enumerate(types)])

    def __call__(self, name: str, *inputs: Value, **attributes: Any) -> Value:
        operation = all_operations()[name]
        full = {a.name: attributes.get(a.name, a.default) for a in operation.signature.attributes}
        node = make_node(operation, inputs, full)
        self.graph.nodes.append(node)
        return node.results[0]


def body(
    write: Callable[..., tuple[Value, ...]], *tensors: Tensor
) -> Callable[[DType, Dimension], Graph]:
    """The body for a dtype and a batch; `tensors` are the carries, the slices and the rest."""

    def make(dtype: DType, batch: Dimension) -> Graph:
        made = Body([tensor.type(dtype, batch) for tensor in tensors])
        outputs = write(made, *made.graph.inputs)
        made.graph.outputs = {f"out{i}": value for i, value in enumerate(outputs)}
        return made.graph

    return make


def _total(write: Body, carry: Value, step: Value) -> tuple[Value, ...]:
    total = write("+", carry, step)
    return total, total


def _moved(write: Body, step: Value) -> tuple[Value, ...]:
    return write("flip", step, axis=(-1,)), write("unsqueeze", step, axis=(0,))


def _counted(
    write: Body, count: Value, state: Value, keep: Value, step: Value, matrix: Value
) -> tuple[Value, ...]:
    """A counter, and a state that a matrix from outside turns and each step feeds or leaves."""
    one = write("cast", write("=", count, count), dtype=DType.I32)
    turned = write("tanh", write("+", write("matmul", state, matrix), step))
    after = write("where", keep, turned, state)
    scale = write("cast", count, dtype=state.type.dtype)
    return write("+", count, one), after, write("*", after, scale), count
