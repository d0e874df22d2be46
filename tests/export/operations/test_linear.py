"""matmul and einsum: meaning, ONNX form, rules and errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Graph, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import Rows, all_operations
from support.harness import (
    assert_close,
    check,
    check_axis_rule,
    check_graph,
    error_of,
    lowered_operators,
    run_onnx,
    single,
)

DTYPES = [DType.F32, DType.F64, DType.BF16, DType.I32, DType.I64]

#: Sums of up to 4 products of numbers up to 4 may cancel: their error is a few units in the last
#: place of 64, not of the result.
ABSOLUTE = {DType.F32: 2e-5, DType.F64: 1e-12, DType.BF16: 2e-5}


def values(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        bounds = np.iinfo(dtype.numpy)
        return generator.integers(bounds.min, bounds.max, shape, dtype.numpy, endpoint=True)
    return generator.uniform(-4, 4, shape).astype(dtype.numpy)


def check_product(name: str, inputs: list[Array], axes: list[int | None], **options: Any) -> None:
    check(name, inputs, axes, absolute=ABSOLUTE.get(DType.of(inputs[0])), **options)


@st.composite
def matmul_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    size = st.integers(0, 4)
    inner = draw(size)
    batch = draw(st.lists(st.integers(0, 3), max_size=2))
    broadcast = [
        tuple(1 if draw(st.booleans()) else d for d in batch[draw(st.integers(0, len(batch))) :])
        for _ in range(2)
    ]
    a = (inner,) if draw(st.integers(0, 4)) == 0 else (*broadcast[0], draw(size), inner)
    b = (inner,) if draw(st.integers(0, 4)) == 0 else (*broadcast[1], inner, draw(size))
    return a, b


@given(matmul_shapes(), st.sampled_from(DTYPES), st.sampled_from([18, 23]), st.booleans())
def test_matmul(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: DType, opset: int, batched: bool
) -> None:
    inputs = [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    axes: list[int | None] = [0 if batched and inputs[0].ndim > 1 and shapes[0][0] > 1 else None]
    if axes[0] == 0 and inputs[1].ndim == inputs[0].ndim > 2 and shapes[1][0] == shapes[0][0]:
        axes.append(0)
    if axes[0] == 0 and inputs[1].ndim >= inputs[0].ndim > 2 and len(axes) == 1:
        axes[0] = None
    check_product("matmul", inputs, axes, opset=opset)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul_is_sums_of_products(dtype: DType) -> None:
    a, b = values((2, 3, 4), dtype), values((4, 2), dtype)
    _, node = single("matmul", [a, b])
    (found,) = node.operation.evaluate([a, b], node.attributes)
    wide = np.float32 if dtype is DType.BF16 else dtype.numpy
    with np.errstate(over="ignore"):
        want = np.zeros((2, 3, 2), wide)
        for n, i, j, k in np.ndindex(2, 3, 2, 4):
            want[n, i, j] += a[n, i, k].astype(wide) * b[k, j].astype(wide)
    assert_close(found, want.astype(dtype.numpy), absolute=ABSOLUTE.get(dtype))


def test_matmul_sums_bf16_in_f32() -> None:
    ones = np.ones((1, 1024), ml_dtypes.bfloat16)
    (found,) = check("matmul", [ones, ones.T])
    # Sums in bf16 would stop at 256, where adding 1 changes nothing.
    assert found == 1024


@pytest.mark.parametrize(
    ("a", "b", "claims"),
    [
        ((3, 4), (4, 5), 2),
        ((2, 3, 4), (4, 5), 3),
        ((2, 3, 4), (2, 4, 5), 4),
        ((2, 1, 3, 4), (5, 4, 2), 4),
        ((4,), (2, 4, 5), 2),
        ((2, 3, 4), (4,), 2),
        ((4,), (4,), 0),
    ],
)
def test_matmul_axes(a: tuple[int, ...], b: tuple[int, ...], claims: int) -> None:
    # (2, 1, …) by (5, …): the stretched axis claims nothing, the other four do.
    assert check_axis_rule("matmul", [values(a, DType.F32), values(b, DType.F32)]) == claims


def test_matmul_errors() -> None:
    f32 = [values((), DType.F32), values((2, 3), DType.F32), values((4, 2), DType.F32)]
    error_of("E-SHAPE-001", "matmul", [f32[0], f32[1]])  # matmul 1
    error_of("E-SHAPE-001", "matmul", [f32[1], f32[2]])  # matmul 2
    error_of("E-SHAPE-001", "matmul", [np.ones((2, 1, 1)), np.ones((3, 1, 1))])  # matmul 3
    error_of("E-DTYPE-001", "matmul", [np.ones((2, 2)), np.ones((2, 2), np.float32)])
    error_of("E-DTYPE-002", "matmul", [np.ones((2, 2), bool), np.ones((2, 2), bool)])


def tied(dtype: DType, lead: tuple[int, ...]) -> tuple[Graph, dict[str, Array], dict[str, Array]]:
    """x @ transpose(w), w a weight that something else reads as well."""
    operations = all_operations()
    x = Value(TensorType(dtype, (Batch(), *lead[1:], 8)), name="x")
    w = Value(TensorType(dtype, (6, 8)), name="w")
    swapped = make_node(operations["transpose"], [w], {"axes": None})
    product = make_node(operations["matmul"], [x, swapped.results[0]], {"precision": "f32"})
    graph = Graph([x], {"w": w}, [swapped, product], {"y": product.results[0]})
    return graph, {"x": values((*lead, 8), dtype)}, {"w": values((6, 8), dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(3,), (2, 3), (2, 1, 3)])
def test_matmul_reads_a_transposed_weight_as_it_is_stored(
    dtype: DType, lead: tuple[int, ...]
) -> None:
    graph, feeds, weights = tied(dtype, lead)
    check_graph(graph, feeds, weights, absolute=2e-5)
    model = build_model(graph, weights.__getitem__, BuildOptions())
    operators = [node.op_type for node in model.graph.node]
    # What is an output and has another shape than Gemm's result is copied on its way out.
    copied = dtype is DType.F32 and len(lead) > 1
    assert ("Gemm" in operators) == (dtype.is_float and not copied)
    assert ("Transpose" in operators) == (copied or not dtype.is_float)


@st.composite
def einsums(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """An equation with diagonals, `...` and sums of all kinds, and shapes that fit it."""
    sizes = {letter: draw(st.integers(0, 3)) for letter in "abcd"}
    unnamed = draw(st.lists(st.integers(0, 3), max_size=2))
    words, shapes = [], []
    for _ in range(draw(st.integers(1, 3))):
        word = "".join(draw(st.lists(st.sampled_from("abcd"), max_size=3)))
        shape = [sizes[letter] for letter in word]
        if draw(st.integers(0, 3)) == 0:
            place = draw(st.integers(0, len(word)))
            own = [1 if draw(st.booleans()) else d for d in unnamed]
            own = own[draw(st.integers(0, len(own))) :]
            word = word[:place] + "..." + word[place:]
            shape[place:place] = own
        words.append(word)
        shapes.append(tuple(shape))
    letters = sorted({letter for word in words for letter in word} - {"."})
    result = "".join(draw(st.permutations(letters))[: draw(st.integers(0, len(letters)))])
    if any("..." in word for word in words) and draw(st.booleans()):
        result = "..." + result
    return ",".join(words) + "->" + result, shapes


@given(einsums(), st.sampled_from(DTYPES), st.sampled_from([18, 23]))
def test_einsum(case: tuple[str, list[tuple[int, ...]]], dtype: DType, opset: int) -> None:
    equation, shapes = case
    inputs = [values(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    # Three factors: products are up to 64, sums of 81 of them.
    relative = {DType.F32: 1e-4, DType.F64: 1e-11}.get(dtype)
    absolute = {DType.F32: 1e-2, DType.F64: 1e-10, DType.BF16: 1e-2}.get(dtype)
    check("einsum", inputs, equation=equation, opset=opset, relative=relative, absolute=absolute)


@given(einsums())
def test_einsum_is_numpys(case: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = case
    inputs = [values(shape, DType.F64, seed) for seed, shape in enumerate(shapes)]
    if "..." in equation and "..." not in equation.partition("->")[2]:
        return  # NumPy asks for the dots in the result; here what is left out is summed.
    _, node = single("einsum", inputs, equation=equation)
    (found,) = node.operation.evaluate(inputs, node.attributes)
    np.testing.assert_allclose(found, np.einsum(equation, *inputs), rtol=1e-10, atol=1e-10)


BATCHED = [
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], [0, 0], "MatMul"),
    ("bij,jk->bik", [(2, 3, 4), (4, 5)], [0, None], "MatMul"),
    ("jk,bij->bik", [(4, 5), (2, 3, 4)], [None, 0], "MatMul"),
    ("btd,hkd->bthk", [(2, 3, 4), (2, 5, 4)], [0, None], "Gemm"),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)], [0, 0], "MatMul"),
    ("xb,yb->xy", [(3, 2), (4, 2)], [1, 1], "MatMul"),
    ("bi,bj->bij", [(2, 3), (2, 4)], [0, 0], "Mul"),
    ("bi,ci->bc", [(2, 3), (2, 3)], [0, 0], "Gemm"),
    ("bci,dij->bcdj", [(2, 2, 3), (4, 3, 5)], [0, None], "MatMul"),
    ("bcit,dit->bcd", [(2, 2, 3, 4), (5, 3, 4)], [0, None], "Gemm"),
    ("bb,b->b", [(2, 2), (2,)], [None, None], "Mul"),
    ("...t,...t", [(2, 3), (2, 3)], [0, 0], "MatMul"),
]


@pytest.mark.parametrize(("equation", "shapes", "axes", "operator"), BATCHED)
def test_einsum_with_a_batch(
    equation: str, shapes: list[tuple[int, ...]], axes: list[int | None], operator: str
) -> None:
    inputs = [values(shape, DType.F32, seed) for seed, shape in enumerate(shapes)]
    check_product("einsum", inputs, axes, equation=equation)
    graph, _ = single("einsum", inputs, axes, equation=equation)
    operators = lowered_operators(graph)
    assert operator in operators
    assert "Einsum" not in operators


def test_einsum_of_two_batches_on_one_operand() -> None:
    # [batch, batch] has no name as one axis, so that the products are summed elementwise.
    x, y = values((2, 2, 3), DType.F32), values((4, 3), DType.F32)
    graph, _ = single("einsum", [x, y], [0, None], equation="bci,di->bcd")
    value = Value(TensorType(DType.F32, (Batch(), Batch(), 3)), name="x0")
    node = make_node(graph.nodes[0].operation, [value, graph.inputs[1]], graph.nodes[0].attributes)
    graph = Graph([value, graph.inputs[1]], {}, [node], {"y0": node.results[0]})
    check_graph(graph, {"x0": x, "x1": y}, {}, absolute=2e-5)


@pytest.mark.parametrize(
    ("equation", "shapes", "claims"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], 4),
        ("ii->i", [(3, 3)], 2),
        ("ij->", [(2, 3)], 0),
        ("...i,...i->...i", [(2, 1, 3), (4, 3)], 4),
    ],
)
def test_einsum_axes(equation: str, shapes: list[tuple[int, ...]], claims: int) -> None:
    inputs = [values(shape, DType.F32, seed) for seed, shape in enumerate(shapes)]
    assert check_axis_rule("einsum", inputs, equation=equation) == claims


def restrict(
    equation: str, shapes: list[tuple[int | Batch, ...]], result: tuple[int | Batch, ...]
) -> str | None:
    """The equation for some rows of axis 1."""
    inputs = tuple(Value(TensorType(DType.F32, shape)) for shape in shapes)
    rows = Rows(
        inputs=inputs,
        input_axes=(None,) * len(inputs),
        result=TensorType(DType.F32, result),
        axis=1,
        count=2,
        positions=Value(TensorType(DType.I32, (Batch(), 2))),
        causal=False,
    )
    changed = all_operations()["einsum"].restrict(rows, {"equation": equation, "precision": "f32"})
    if changed is None:
        return None
    types = [value.type for value in changed[0]]
    assert all_operations()["einsum"].infer(types, changed[1])[0].shape == result
    return str(changed[1]["equation"])


def test_einsum_for_some_rows() -> None:
    batch = Batch()
    same = restrict("bqd,btd->bqt", [(batch, 2, 4), (batch, 5, 4)], (batch, 2, 5))
    assert same == "bqd,btd->bqt"
    # What had no batch comes with one, aligned to the result.
    table = restrict("btd,td->btd", [(batch, 2, 4), (batch, 2, 4)], (batch, 2, 4))
    assert table == "btd,b...td->btd"
    vector = restrict("btd,t->btd", [(batch, 2, 4), (batch, 1, 2)], (batch, 2, 4))
    assert vector == "btd,b...t->btd"
    assert restrict("btt->bt", [(batch, 2, 2)], (batch, 2)) is None
    # `...` takes the batch in.
    same = restrict("...d,ed->...e", [(batch, 2, 4), (5, 4)], (batch, 2, 5))
    assert same == "...d,ed->...e"
    table = restrict("...d,td->...td", [(batch, 4), (batch, 2, 4)], (batch, 2, 4))
    assert table == "...d,...td->...td"
    # A table that is a factor of a sum would move from one side of the product to the other.
    assert restrict("bid,td->bti", [(batch, 3, 4), (batch, 2, 4)], (batch, 2, 3)) is None


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bqd,btd->bqt", [(2, 300, 768), (2, 100, 768)]),
        ("btd,bqd->bqt", [(2, 100, 768), (2, 300, 768)]),
        ("bhqt,bhtd->bqhd", [(2, 3, 300, 768), (2, 3, 768, 20)]),
        ("bqd,dk->bqk", [(2, 300, 768), (768, 100)]),
        ("bqd,bd->bq", [(2, 300, 768), (2, 768)]),
        ("bd,bqd,d->bq", [(2, 768), (2, 300, 768), (768,)]),
    ],
)
def test_a_row_of_einsum_has_the_bits_of_the_window(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    words = equation.partition("->")[0].split(",")
    letter = equation.partition("->")[2][1]
    inputs = [values(shape, DType.F32, seed) for seed, shape in enumerate(shapes)]
    rows = [
        array.take([7, 7], axis=word.index(letter)) if letter in word else array
        for word, array in zip(words, inputs, strict=True)
    ]
    results = []
    for tensors in (inputs, rows):
        axes = [0 if "b" in word else None for word in words]
        graph, _ = single("einsum", tensors, axes, equation=equation)
        feeds = {f"x{i}": array for i, array in enumerate(tensors)}
        results.append(run_onnx(build_model(graph, {}.__getitem__, BuildOptions()), feeds)["y0"])
    assert results[0][:, [7, 7]].tobytes() == results[1].tobytes()


def test_matmul_for_some_rows() -> None:
    def changed(result: tuple[Any, ...], axis: int, *shapes: tuple[Any, ...]) -> bool:
        rows = Rows(
            inputs=tuple(Value(TensorType(DType.F32, shape)) for shape in shapes),
            input_axes=(None, None),
            result=TensorType(DType.F32, result),
            axis=axis,
            count=2,
            positions=Value(TensorType(DType.I32, (Batch(), 2))),
            causal=False,
        )
        return all_operations()["matmul"].restrict(rows, {"precision": "f32"}) is not None

    batch = Batch()
    assert changed((batch, 5, 6), 1, (batch, 2, 3), (3, 6))
    assert changed((batch, 5), 1, (batch, 2, 3), (3,))
    # A column: its bits may depend on how many there are.
    assert not changed((batch, 5, 6), 2, (batch, 5, 3), (batch, 3, 2))


def test_einsum_errors() -> None:
    x = values((2, 3), DType.F32)
    for equation in ("ij,jk->ik", "i1->i", "i......->i", "i.j->i", "éj->j"):  # einsum 1
        error_of("E-VALUE-001", "einsum", [x], equation=equation)
    error_of("E-VALUE-001", "einsum", [], equation="i->i")  # einsum 1
    error_of("E-SHAPE-001", "einsum", [x], equation="i->i")  # einsum 2
    error_of("E-SHAPE-001", "einsum", [x], equation="ijk...->i")  # einsum 2
    error_of("E-SHAPE-001", "einsum", [x], equation="ii->i")  # einsum 3
    error_of("E-SHAPE-001", "einsum", [x, np.float32([[1, 2]])], equation="...,...")  # einsum 3
    error_of("E-VALUE-001", "einsum", [x], equation="ij->k")  # einsum 4
    error_of("E-VALUE-001", "einsum", [x], equation="ij->ii")  # einsum 4
    square = Value(TensorType(DType.F32, (Batch(), Batch())), name="x")
    with pytest.raises(Exception, match="the diagonal of two axes that are both the batch"):
        make_node(  # einsum 5: E-SHAPE-002
            all_operations()["einsum"], [square], {"equation": "ii->i", "precision": "f32"}
        )


@pytest.mark.parametrize(
    ("name", "attributes"), [("matmul", {}), ("einsum", {"equation": "bij,jk->bik"})]
)
def test_bf16_precision_rounds_what_is_multiplied(name: str, attributes: dict[str, Any]) -> None:
    x, w = values((2, 3, 64), DType.F32), values((64, 5), DType.F32)
    inputs = [x, w]
    (found,) = check(name, inputs, precision="bf16", absolute=1e-3, **attributes)
    rounded = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in inputs]
    np.testing.assert_allclose(found, rounded[0] @ rounded[1], rtol=1e-5, atol=1e-3)
    assert np.abs(found - x.astype(np.float64) @ w).max() > 1e-2
    for dtype in (DType.F64, DType.I32):
        other = [values((2, 3, 64), dtype), values((64, 5), dtype)]
        (found,) = check(name, other, precision="bf16", absolute=1e-10, **attributes)
        np.testing.assert_allclose(found, other[0] @ other[1], rtol=1e-10, atol=1e-10)


def test_native_bf16_multiplies_in_bf16() -> None:
    graph, _ = single(
        "matmul", [np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)], precision="bf16"
    )
    operators = lowered_operators(graph, native_bf16=True)
    assert operators == ["Cast", "Cast", "MatMul", "Cast"]


@pytest.mark.parametrize("columns", [1, 2, 16])
def test_a_row_has_the_bits_of_the_window(columns: int) -> None:
    a, b = values((2, 64, 32), DType.F32), values((2, 32, columns), DType.F32)
    whole, _ = single("matmul", [a, b], [0, 0])
    rows, _ = single("matmul", [a[:, 5:7], b], [0, 0])
    full = run_onnx(build_model(whole, {}.__getitem__, BuildOptions()), {"x0": a, "x1": b})
    some = run_onnx(build_model(rows, {}.__getitem__, BuildOptions()), {"x0": a[:, 5:7], "x1": b})
    assert full["y0"][:, 5:7].tobytes() == some["y0"].tobytes()


def test_a_tied_weight_stands_once_in_a_session() -> None:
    graph, _, weights = tied(DType.F32, (2, 3))
    model = build_model(graph, weights.__getitem__, BuildOptions())
    assert [tensor.name for tensor in model.graph.initializer if tensor.dims == [6, 8]] == ["w"]
    assert not any(tensor.dims == [8, 6] for tensor in model.graph.initializer)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
