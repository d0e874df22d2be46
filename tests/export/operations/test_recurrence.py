"""lstm and gru: against the formulas element by element, ONNX Runtime, and their rules."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import WHOLE, Apart, Causal, Rows, all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check, check_axis_rule, error_of, lowered_operators, single

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), BF16]
GATES = {"lstm": 4, "gru": 3}
STATES = {"lstm": ("h", "c"), "gru": ("h",)}
#: Runtimes approximate sigmoid and tanh in f32 to about 1e-6 of 1; errors add up over the steps.
ABSOLUTE = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 1e-2}


def numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def run(
    name: str,
    arrays: dict[str, Array],
    reverse: bool,
    rounded: bool = False,
    reset_after: bool = True,
) -> list[Array]:
    """The layer's formulas, one number at a time in Python's floats.

    With `rounded` what is multiplied by a weight is rounded to bf16, and so are the weights.
    """

    def operand(array: Array) -> Array:
        return np.asarray(array.astype(BF16 if rounded else array.dtype), np.float64)

    x, w, r = (operand(arrays[key]) for key in ("x", "w-input", "w-recurrent"))
    records, times, _ = x.shape
    hidden = r.shape[1]
    zeros = np.zeros(len(w))
    input_bias = arrays.get("bias-input", zeros).astype(np.float64)
    state_bias = arrays.get("bias-recurrent", zeros).astype(np.float64)
    states = [
        arrays[key].astype(np.float64) if key in arrays else np.zeros((records, hidden))
        for key in STATES[name]
    ]
    sequence = np.zeros((records, times, hidden))
    for time in range(times)[:: -1 if reverse else 1]:
        after = [state.copy() for state in states]
        for record in range(records):
            if "lengths" in arrays and time >= max(1, arrays["lengths"][record]):
                continue
            h = states[0][record]
            reset = np.empty(hidden)
            for unit in range(hidden if name == "gru" else 0):
                added = w[unit] @ x[record, time] + r[unit] @ operand(h)
                reset[unit] = sigmoid(added + input_bias[unit] + state_bias[unit])
            for unit in range(hidden):
                a, b = [], []
                for gate in range(GATES[name]):
                    row = gate * hidden + unit
                    a.append(float(w[row] @ x[record, time]) + input_bias[row])
                    b.append(float(r[row] @ operand(states[0][record])) + state_bias[row])
                if name == "lstm":
                    i, f, g, o = (p + q for p, q in zip(a, b, strict=True))
                    c = sigmoid(f) * states[1][record, unit] + sigmoid(i) * math.tanh(g)
                    after[1][record, unit] = c
                    after[0][record, unit] = sigmoid(o) * math.tanh(c)
                else:
                    update, row = sigmoid(a[1] + b[1]), 2 * hidden + unit
                    old = reset[unit] * b[2]
                    if not reset_after:
                        old = float(r[row] @ operand(reset * h)) + state_bias[row]
                    new = math.tanh(a[2] + old)
                    after[0][record, unit] = (1 - update) * new + update * states[0][record, unit]
            sequence[record, time] = after[0][record]
        states = after
    return [sequence, *states]


@st.composite
def calls(draw: Any, name: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Operands by name, some of the optional ones, and the attributes."""
    records, times = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    width, hidden = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    rows, dtype = GATES[name] * hidden, draw(st.sampled_from(DTYPES))
    shapes = {
        "x": (records, times, width),
        "w-input": (rows, width),
        "w-recurrent": (rows, hidden),
        "bias-input": (rows,),
        "bias-recurrent": (rows,),
        **dict.fromkeys(STATES[name], (records, hidden)),
    }
    optional = tuple(key for key in list(shapes)[3:] if draw(st.booleans()))
    seed = draw(st.integers(0, 999))
    arrays = {
        key: numbers(seed + i, *shape, dtype=dtype)
        for i, (key, shape) in enumerate(shapes.items())
        if i < 3 or key in optional
    }
    attributes = {"given": optional, "reverse": draw(st.booleans())}
    if draw(st.booleans()):
        # Some of them beyond what there is.
        lengths = st.lists(st.integers(-1, times + 1), min_size=records, max_size=records)
        arrays["lengths"] = np.array(draw(lengths), draw(st.sampled_from(["i4", "i8"])))
        attributes["given"] += ("lengths",)
    if name == "gru":
        attributes["reset-after"] = draw(st.booleans())
    return arrays, attributes


@pytest.mark.parametrize("name", ["lstm", "gru"])
@given(st.data())
@settings(max_examples=40)
def test_onnx_and_the_formulas_agree_with_the_meaning(name: str, data: Any) -> None:
    arrays, attributes = data.draw(calls(name))
    batch = data.draw(st.booleans())
    axes = [0 if batch and key in ("x", "h", "c", "lengths") else None for key in arrays]
    absolute = ABSOLUTE[DType.of(arrays["x"])]
    opset = data.draw(st.sampled_from([18, 23]))
    found = check(name, list(arrays.values()), axes, absolute=absolute, opset=opset, **attributes)
    after = attributes.get("reset-after", True)
    wanted = run(name, arrays, attributes["reverse"], reset_after=after)
    for array, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(array.astype(np.float64), want, rtol=1e-2, atol=absolute)


@pytest.mark.parametrize(("name", "reset_after"), [("lstm", True), ("gru", True), ("gru", False)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_products_in_bf16(name: str, dtype: Any, reverse: bool, reset_after: bool) -> None:
    """x, the weights and the state are rounded at each product, and nothing else is."""
    rows = GATES[name] * 3
    shapes = [(2, 4, 2), (rows, 2), (rows, 3), (rows,), (rows,), (2, 3)]
    keys = ["x", "w-input", "w-recurrent", "bias-input", "bias-recurrent", "h"]
    arrays = {
        key: numbers(i, *shape, dtype=dtype)
        for i, (key, shape) in enumerate(zip(keys, shapes, strict=True))
    }
    options = {"given": tuple(keys[3:]), "reverse": reverse, "precision": "bf16"}
    if name == "gru":
        options["reset-after"] = reset_after
    axes = [0, None, None, None, None, 0]
    # The results are rounded to bf16 as well where that is their dtype.
    absolute = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5, BF16: 1e-2}[dtype]
    found = check(name, list(arrays.values()), axes, absolute=absolute, **options)
    want = run(name, arrays, reverse, dtype != np.float64, reset_after)
    for array, exact in zip(found, want, strict=True):
        np.testing.assert_allclose(array.astype(np.float64), exact, rtol=0, atol=absolute)
    if dtype == np.float32:
        plain = run(name, arrays, reverse, reset_after=reset_after)
        assert np.abs(plain[0] - found[0]).max() > 1e-4


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_runtimes_get_their_own_operator_in_f32_alone(name: str) -> None:
    rows = GATES[name] * 2
    for dtype, precision, operator in [
        (np.float32, "f32", name.upper()),
        (np.float32, "bf16", "Scan"),
        (np.float64, "f32", "Scan"),
        (BF16, "f32", name.upper()),
    ]:
        arrays = [
            numbers(i, *s, dtype=dtype) for i, s in enumerate([(1, 3, 2), (rows, 2), (rows, 2)])
        ]
        graph, _ = single(name, arrays, [0], precision=precision)
        assert operator in lowered_operators(graph)


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_inputs_saturate_and_a_nan_spreads(name: str, dtype: Any) -> None:
    rows = GATES[name] * 2
    x = np.array([[[1e4], [-1e4]], [[np.nan], [0]]], dtype)
    w, r = np.ones((rows, 1), dtype), np.ones((rows, 2), dtype)
    sequence, *_ = check(name, [x, w, r], [0])
    sequence = sequence.astype(np.float64)
    assert np.isfinite(sequence[0]).all()
    assert np.isnan(sequence[1]).all()


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_what_a_record_does_not_have_is_not_read(name: str, reverse: bool, states: bool) -> None:
    """No NaN of it comes through, and runtimes whose operators know no lengths take it."""
    rows, lengths = GATES[name] * 3, np.array([1, 3, 4], np.int32)
    arrays = [numbers(0, 3, 4, 2), numbers(1, rows, 2) * 9, numbers(2, rows, 3) * 9]
    for record, length in enumerate(lengths):
        arrays[0][record, length:] = np.nan
    given = STATES[name] if states else ()
    arrays += [numbers(3 + i, 3, 3) for i, _ in enumerate(given)]
    options = {"given": (*given, "lengths"), "reverse": reverse}
    axes = [0, None, None, *[0] * len(given), 0]
    sequence, *finals = check(name, [*arrays, lengths], axes, absolute=1e-5, **options)
    for record, length in enumerate(lengths):
        alone = [a[[record]] if i in (0, 3, 4) else a for i, a in enumerate(arrays)]
        alone[0] = alone[0][:, :length]
        read, *states_after = check(name, alone, given=given, reverse=reverse, absolute=1e-5)
        np.testing.assert_allclose(sequence[record, :length], read[0], atol=1e-6)
        assert not sequence[record, length:].any()
        for found, want in zip(finals, states_after, strict=True):
            np.testing.assert_allclose(found[record], want[0], atol=1e-6)
    graph, _ = single(name, [*arrays, lengths], axes, **options)
    model = build_model(graph, {}.__getitem__, BuildOptions())
    operators = [node.op_type for node in model.graph.node]
    assert all(not n.input[4] for n in model.graph.node if n.op_type == name.upper())
    assert operators.count("Scan") == (name == "lstm" and reverse and states)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_axis_rules(name: str) -> None:
    rows, count = GATES[name] * 3, 1 + len(STATES[name])
    arrays = [numbers(0, 2, 4, 2), numbers(1, rows, 2), numbers(2, rows, 3), numbers(3, 2, 3)]
    # Records of x and of h for every result, and time for the sequence.
    assert check_axis_rule(name, arrays, given=("h",)) == 2 * count + 1
    assert check_axis_rule(name, arrays, given=("h",), reverse=True) == 2 * count
    lengths = np.array([3, 2], np.int32)
    # Records of the lengths as well.
    both = {"given": ("h", "lengths")}
    assert check_axis_rule(name, [*arrays, lengths], **both) == 3 * count + 1
    _, node = single(name, arrays, given=("h",))
    rule, arguments = (
        node.operation.axis_rule,
        (node.input_types, node.attributes, node.result_types),
    )
    assert rule(0, 1, *arguments) == [Causal(1), *[WHOLE] * (count - 1)]
    assert rule(3, 0, *arguments) == [Apart(0)] * count
    assert rule(1, 0, *arguments) == [WHOLE] * count


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_fewer_positions_are_not_computed_by_it(name: str) -> None:
    rows = GATES[name] * 3
    arrays = [numbers(0, 2, 4, 2), numbers(1, rows, 2), numbers(2, rows, 3)]
    _, node = single(name, arrays)
    request = Rows(
        node.inputs, (1, None, None), node.results[0].type, 1, 1, node.inputs[0], causal=True
    )
    assert node.operation.restrict(request, node.attributes) is None


X, W, R = numbers(0, 2, 4, 2), numbers(1, 12, 2), numbers(2, 12, 3)


@pytest.mark.parametrize(
    ("arrays", "given_names"),
    [
        ([X[0], W, R], ()),  # lstm 1
        ([X[:, :0], W, R], ()),  # lstm 1
        ([X, W[:, :1], R], ()),  # lstm 2
        ([X, W[:9], R], ()),  # lstm 2
        ([X, W, R[:9]], ()),  # lstm 2
        ([X, W, R[:, :2]], ()),  # lstm 2
        ([X, W[0], R], ()),  # lstm 2
        ([X[:, :, :0], W[:, :0], R], ()),  # lstm 2
        ([X, W[:0], R[:0, :0]], ()),  # lstm 2
        ([X, W, R, numbers(3, 3)], ("bias-input",)),  # lstm 3
        ([X, W, R, numbers(3, 12, 1)], ("bias-recurrent",)),  # lstm 3
        ([X, W, R, numbers(3, 1, 3)], ("h",)),  # lstm 4
        ([X, W, R, numbers(3, 2, 4)], ("c",)),  # lstm 4
        ([X, W, R, np.array([1], np.int32)], ("lengths",)),  # lstm 5
        ([X, W, R, np.array([[1], [2]], np.int32)], ("lengths",)),  # lstm 5
    ],
)
def test_constraints(arrays: list[Array], given_names: tuple[str, ...]) -> None:
    error_of("E-SHAPE-001", "lstm", arrays, given=given_names)


def test_lengths_are_whole_numbers() -> None:  # lstm 5
    error_of("E-DTYPE-002", "lstm", [X, W, R, numbers(3, 2)], given=("lengths",))


def test_gru_has_three_gates() -> None:  # gru 2
    error = error_of("E-SHAPE-001", "gru", [X, W, R])
    assert error.expected == "[9, 2] and [9, 3], 3 gates"


@pytest.mark.parametrize("shape", [(2, Batch(), 2), (2, 4, Batch())])
def test_the_batch_is_the_first_axis_only(shape: Any) -> None:  # lstm 1
    operation = all_operations()["lstm"]
    attributes = {a.name: a.default for a in operation.signature.attributes}
    types = [TensorType(DType.F32, s) for s in (shape, (12, 2), (12, 3))]
    with pytest.raises(SexpgpuError) as caught:
        operation.infer_checked(types, attributes)
    assert caught.value.code == "E-SHAPE-002"
