"""scan: against a loop in Python, ONNX Runtime, and the axis rule that its body gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.operations.operation import (
    UNREAD,
    WHOLE,
    Apart,
    Causal,
    Rows,
    all_operations,
)
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import (
    check,
    check_axis_rule,
    check_graph,
    error_of,
    lowered_operators,
    single,
    tensor_type,
)

SCAN = all_operations()["scan"]
B = Batch()


class Body:
    """Writes a body graph: its inputs by type, and operations by name."""

    def __init__(self, *types: TensorType) -> None:
        self.graph = Graph(inputs=[Value(type, name=f"in{i}") for i, type in enumerate(types)])

    def __call__(self, name: str, *inputs: Value, **attributes: Any) -> Value:
        operation = all_operations()[name]
        full = {a.name: attributes.get(a.name, a.default) for a in operation.signature.attributes}
        node = make_node(operation, inputs, full)
        self.graph.nodes.append(node)
        return node.results[0]

    def returns(self, *outputs: Value) -> Graph:
        self.graph.outputs = {f"out{i}": value for i, value in enumerate(outputs)}
        return self.graph


def running_total(type: TensorType) -> Graph:
    """carry + slice, which is both the next carry and what is stacked."""
    body = Body(type, type)
    total = body("+", *body.graph.inputs)
    return body.returns(total, total)


def f32(*shape: Any) -> TensorType:
    return TensorType(DType.F32, shape)


def numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * 4).astype(dtype)


DTYPES = [np.float32, np.float64, ml_dtypes.bfloat16, np.int32, np.int64]


@given(
    st.sampled_from(DTYPES),
    st.integers(0, 4),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([None, 0]),
    st.sampled_from([18, 23]),
)
def test_a_running_total(
    dtype: Any, steps: int, axis: int, reverse: bool, batch_axis: int | None, opset: int
) -> None:
    first = numbers(0, 2, 3, dtype=dtype)
    x = numbers(1, steps, 2, 3, dtype=dtype)
    sliced = np.moveaxis(x, 0, axis)
    x_batch = None if batch_axis is None else int(axis == 0)
    body = running_total(tensor_type(first, batch_axis))
    final, stacked = check(
        "scan",
        [first, sliced],
        [batch_axis, x_batch],
        opset=opset,
        body=body,
        carries=1,
        sequences=1,
        axis=axis,
        reverse=reverse,
    )
    total, rows = first, [first] * steps
    for step in range(steps)[:: -1 if reverse else 1]:
        total = rows[step] = total + x[step]
    np.testing.assert_array_equal(final, total)
    assert stacked.shape == sliced.shape
    for step in range(steps):
        np.testing.assert_array_equal(stacked.take(step, axis), rows[step])


def test_carries_of_several_dtypes_and_values_from_outside() -> None:
    """A counter, and a state that a captured matrix turns and each of two sequences feeds."""
    counter, state, x, mask, matrix = (
        TensorType(DType.I32, ()),
        f32(B, 3),
        f32(B, 3),
        TensorType(DType.BOOL, (B, 1)),
        f32(3, 3),
    )
    body = Body(counter, state, x, mask, matrix)
    count, h, step, keep, w = body.graph.inputs
    one = body("constant", value=np.array(1, np.int32))
    turned = body("+", body("matmul", h, w), step)
    after = body("where", keep, turned, h)
    scale = body("cast", count, dtype=DType.F32)
    graph = body.returns(body("+", count, one), after, body("*", after, scale), count)
    xs, masks = numbers(1, 4, 2, 3), numbers(2, 4, 2, 1) > 0
    h, matrix = numbers(0, 2, 3), numbers(3, 3, 3) / 4
    counted, final, scaled, counts = check(
        "scan",
        [np.array(5, np.int32), h, xs, masks, matrix],
        [None, 0, 1, 1, None],
        body=graph,
        carries=2,
        sequences=2,
        # Four products deep.
        relative=1e-4,
        absolute=1e-4,
    )
    assert counted == 9
    for number, (slice_, kept) in enumerate(zip(xs, masks, strict=True)):
        h = np.where(kept, h @ matrix + slice_, h)
        np.testing.assert_allclose(scaled[number], h * (5 + number), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(final, h, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(counts, [5, 6, 7, 8])


def test_nothing_is_carried_or_what_goes_in_comes_out() -> None:
    x, y = numbers(0, 3, 2), numbers(1, 2)
    body = Body(f32(2), f32(2))
    graph = body.returns(body("+", *body.graph.inputs))
    (rows,) = check("scan", [x, y], body=graph, carries=0, sequences=1)
    np.testing.assert_array_equal(rows, x + y)
    swap = Body(f32(2), f32(2), f32(2))
    a, b, row = swap.graph.inputs
    graph = swap.returns(b, a, row, row, a)
    found = check("scan", [y, 2 * y, x], body=graph, carries=2, sequences=1)
    for array, want in zip(found, [2 * y, y, x, x, np.stack([y, 2 * y, y])], strict=True):
        np.testing.assert_array_equal(array, want)


def test_the_batch_is_known_inside_though_no_input_of_the_body_has_it() -> None:
    body = Body(f32())
    (x,) = body.graph.inputs
    graph = body.returns(body("broadcast-to", x, shape=(B, 2)))
    xs, batch = numbers(0, 3), numbers(1, 4)
    operands = [Value(f32(3), name="x0")]
    node = make_node(SCAN, operands, attributes(graph, 0, 1))
    assert node.result_types == (f32(3, B, 2),)
    other = Value(f32(B), name="x1")
    outer = Graph([*operands, other], nodes=[node], outputs={"y": node.results[0], "z": other})
    (rows, _) = check_graph(outer, {"x0": xs, "x1": batch}, {})
    np.testing.assert_array_equal(rows, np.broadcast_to(xs[:, None, None], (3, 4, 2)))


def test_a_scan_in_a_scan() -> None:
    inner = running_total(f32())
    body = Body(f32(), f32(3))
    total, row = body.graph.inputs
    node = make_node(SCAN, [total, row], attributes(inner, 1, 1))
    body.graph.nodes.append(node)
    graph = body.returns(*node.results)
    x = numbers(0, 2, 3)
    final, rows = check("scan", [np.array(1, np.float32), x], body=graph, carries=1, sequences=1)
    want = 1 + np.cumsum(x).reshape(2, 3)
    np.testing.assert_allclose(rows, want, rtol=1e-5)
    np.testing.assert_allclose(final, want[-1, -1], rtol=1e-5)


def test_it_becomes_a_scan_whose_body_reads_outside_without_a_copy() -> None:
    body = Body(f32(2), f32(2), f32(2, 2))
    h, x, w = body.graph.inputs
    after = body("+", body("matmul", h, w), x)
    graph, _ = single(
        "scan",
        [numbers(0, 2), numbers(1, 3, 2), numbers(2, 2, 2)],
        body=body.returns(after, after),
        carries=1,
        sequences=1,
    )
    assert lowered_operators(graph) == ["Scan"]


def attributes(body: Graph, carries: int, sequences: int, **others: Any) -> dict[str, Any]:
    return {
        "body": body,
        "carries": carries,
        "sequences": sequences,
        "axis": 0,
        "reverse": False,
        **others,
    }


def fates(types: Sequence[TensorType], operand: int, axis: int, given: dict[str, Any]) -> list[Any]:
    node = make_node(SCAN, [Value(type) for type in types], given)
    return list(SCAN.axis_rule(operand, axis, types, given, node.result_types))


def test_axis_rule_of_a_running_total() -> None:
    body = running_total(f32(2, 3))
    types = [f32(2, 3), f32(2, 4, 3)]
    given = attributes(body, 1, 1, axis=1)
    assert fates(types, 0, 0, given) == [Apart(0), Apart(0)]
    assert fates(types, 0, 1, given) == [Apart(1), Apart(2)]
    assert fates(types, 1, 0, given) == [Apart(0), Apart(0)]
    assert fates(types, 1, 1, given) == [WHOLE, Causal(1)]
    assert fates(types, 1, 2, given) == [Apart(1), Apart(2)]
    assert fates(types, 1, 1, {**given, "reverse": True}) == [WHOLE, WHOLE]
    arrays = [numbers(0, 2, 3), numbers(1, 2, 4, 3)]
    claims = check_axis_rule("scan", arrays, body=body, carries=1, sequences=1, axis=1)
    assert claims == 9


def test_axis_rule_without_a_carry_that_reads_the_sequence() -> None:
    """Every step adds its number to its slice: positions stay apart, and the counter reads none."""
    body = Body(f32(), f32(3), f32(3))
    count, x, bias = body.graph.inputs
    one = body("constant", value=np.array(1, np.float32))
    graph = body.returns(body("+", count, one), body("+", body("+", x, count), bias))
    types = [f32(), f32(4, 3), f32(3)]
    given = attributes(graph, 1, 1)
    assert fates(types, 1, 0, given) == [UNREAD, Apart(0)]
    assert fates(types, 1, 1, given) == [UNREAD, Apart(1)]
    assert fates(types, 2, 0, given) == [UNREAD, Apart(1)]
    assert fates(types, 1, 0, {**given, "reverse": True}) == [UNREAD, Apart(0)]
    arrays = [np.array(1, np.float32), numbers(0, 4, 3), numbers(1, 3)]
    assert check_axis_rule("scan", arrays, body=graph, carries=1, sequences=1) == 3


def test_axis_rule_of_a_carry_that_mixes_only_after_two_steps() -> None:
    """What a step adds reads the second carry, which takes the first, which is mixed."""
    body = Body(f32(2, 2), f32(2, 2), f32(2))
    a, b, _ = body.graph.inputs
    graph = body.returns(body("transpose", b), a, b)
    types = [f32(2, 2), f32(2, 2), f32(3, 2)]
    given = attributes(graph, 2, 1)
    # Axis 0 comes to stand as axis 0 and as axis 1 of the same carry.
    assert fates(types, 0, 0, given) == [WHOLE, WHOLE, WHOLE]
    arrays = [numbers(0, 2, 2), numbers(1, 2, 2), numbers(2, 3, 2)]
    check_axis_rule("scan", arrays, body=graph, carries=2, sequences=1)


def test_axis_rule_of_a_body_that_is_causal_along_an_axis() -> None:
    body = Body(f32(1, 1, 3), f32(1, 1, 3), f32(1, 1, 2))
    h, x, w = body.graph.inputs
    after = body("+", h, body("conv", x, w, padding=((1, 0),)))
    graph = body.returns(after, after)
    types = [f32(1, 1, 3), f32(4, 1, 1, 3), f32(1, 1, 2)]
    assert fates(types, 1, 3, attributes(graph, 1, 1)) == [Causal(2), Causal(3)]
    assert fates(types, 0, 2, attributes(graph, 1, 1)) == [Apart(2), Apart(3)]
    arrays = [numbers(0, 1, 1, 3), numbers(1, 4, 1, 1, 3), numbers(2, 1, 1, 2)]
    assert check_axis_rule("scan", arrays, body=graph, carries=1, sequences=1) == 15


def test_records_of_a_batch() -> None:
    total = attributes(running_total(f32(B, 3)), 1, 1)
    types = [f32(B, 3), f32(4, B, 3)]
    assert fates(types, 0, 0, total) == [Apart(0), Apart(1)]
    assert fates(types, 1, 1, total) == [Apart(0), Apart(1)]
    assert SCAN.varies_along(total, f32(4, B, 3)) == {0, 2}
    # Positions that are numbered inside the body, along the batch or along another axis.
    for length, apart in [(B, False), (3, True)]:
        inside, outside = (f32(B, 3), f32(4, B, 3)) if apart else (f32(B), f32(4, B))
        body = Body(inside, inside)
        h, x = body.graph.inputs
        places = body("iota", length=(length,), dtype=DType.F32)
        graph = body.returns(body("+", h, body("+", x, places)), x)
        given = attributes(graph, 1, 1)
        assert fates([inside, outside], 1, 1, given)[0] == (Apart(0) if apart else WHOLE)
        assert (1 in SCAN.varies_along(given, outside)) is not apart


def test_fewer_positions_are_not_computed_by_it() -> None:
    body = running_total(f32(2))
    given = attributes(body, 1, 1)
    types = [f32(2), f32(4, 2)]
    node = make_node(SCAN, [Value(type) for type in types], given)
    rows = Rows(node.inputs, (0, 1), node.result_types[0], 0, 1, node.inputs[0], causal=False)
    assert SCAN.restrict(rows, given) is None


def twice() -> Graph:
    """A carry that is another type after a step than before it."""
    body = Body(f32(2), f32(2))
    return body.returns(body("concat", *body.graph.inputs, axis=0))


H, XS = numbers(0, 2), numbers(1, 4, 2)


@pytest.mark.parametrize(
    ("code", "arrays", "given"),
    [
        ("E-VALUE-001", [H, XS], attributes(running_total(f32(2)), 1, 0)),  # scan 1
        ("E-VALUE-001", [H, XS], attributes(running_total(f32(2)), 2, 1)),  # scan 1
        ("E-VALUE-001", [H, XS], attributes(running_total(f32(2)), -1, 1)),  # scan 1
        ("E-VALUE-001", [H, XS, H], attributes(running_total(f32(2)), 1, 1)),  # scan 1
        ("E-VALUE-001", [H, XS], attributes(Body(f32(2), f32(2)).returns(), 1, 1)),  # scan 1
        ("E-VALUE-001", [H, XS], attributes(running_total(f32(2)), 1, 1, axis=2)),  # scan 2
        ("E-VALUE-001", [H, XS], attributes(running_total(f32(2)), 1, 1, axis=-1)),  # scan 2
        (
            "E-VALUE-001",
            [np.zeros((2**20 + 1, 0), np.float32)],
            attributes((e := Body(f32(0))).returns(*e.graph.inputs), 0, 1),
        ),  # scan 2
        ("E-SHAPE-001", [XS, XS[:3]], attributes(running_total(f32(2)), 0, 2)),  # scan 2
        ("E-SHAPE-001", [H, XS[:, :1]], attributes(running_total(f32(2)), 1, 1)),  # scan 3
        ("E-SHAPE-001", [H, XS.astype(int)], attributes(running_total(f32(2)), 1, 1)),  # scan 3
        ("E-SHAPE-001", [H, XS], attributes(twice(), 1, 1)),  # scan 4
    ],
)
def test_constraints(code: str, arrays: list[Array], given: dict[str, Any]) -> None:
    error_of(code, "scan", arrays, **given)


def test_results_have_the_axis_along_which_they_are_stacked() -> None:  # scan 5
    body = Body(f32(2))
    graph = body.returns(body("sum", body.graph.inputs[0]))
    arrays = [numbers(0, 2, 4)]
    error = error_of("E-SHAPE-001", "scan", arrays, **attributes(graph, 0, 1, axis=1))
    assert error.expected == "an axis of at most 0"


def test_the_steps_are_counted() -> None:  # scan 2
    with pytest.raises(SexpgpuError) as caught:
        SCAN.infer_checked([f32(2), f32(B, 2)], attributes(running_total(f32(2)), 1, 1))
    assert caught.value.code == "E-SHAPE-002"
