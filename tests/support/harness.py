"""Runs one operation, or a graph, through the reference and through ONNX Runtime, and compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest

from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.reference import evaluate, evaluate_node
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType, concrete
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.operations.operation import Apart, Causal, all_operations
from sexpgpu.schemas.errors import SexpgpuError

#: Relative error that one operation may have against NumPy: a few units in the last place of the
#: dtype in which runtimes compute (bf16 is computed in f32 and rounded once, so that a value that
#: lies between two bf16 may fall to either side: one unit, 2^-8).
RELATIVE = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 2.0**-7}
ABSOLUTE = {DType.F32: 1e-6, DType.F64: 1e-12, DType.BF16: 1e-5}


def tensor_type(array: Array, batch_axis: int | None = None) -> TensorType:
    """The type of an array; with `batch_axis`, that axis is the symbolic batch."""
    shape: list[Any] = list(array.shape)
    if batch_axis is not None:
        shape[batch_axis] = Batch()
    return TensorType(DType.of(array), tuple(shape))


def single(
    name: str, inputs: Sequence[Array], batch_axes: Sequence[int | None] = (), **attributes: Any
) -> tuple[Graph, Node]:
    """A graph of one node; inputs are x0, x1, …, outputs y0, y1, ….

    Attributes left out take their defaults.
    """
    operation = all_operations()[name]
    axes = list(batch_axes) + [None] * (len(inputs) - len(batch_axes))
    values = [
        Value(tensor_type(array, axis), name=f"x{i}")
        for i, (array, axis) in enumerate(zip(inputs, axes, strict=True))
    ]
    full = {a.name: attributes.pop(a.name, a.default) for a in operation.signature.attributes}
    assert not attributes, f"{name} has no attributes {sorted(attributes)}"
    node = make_node(operation, values, full)
    outputs = {f"y{i}": value for i, value in enumerate(node.results)}
    return Graph(inputs=values, nodes=[node], outputs=outputs), node


def run_onnx(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by ONNX Runtime on the CPU, bf16 through bound buffers."""
    return run_session(open_session(model), inputs)


def open_session(model: onnx.ModelProto) -> Any:
    """A session of ONNX Runtime on the CPU, on one thread; the model is checked first."""
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_session(session: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A session's outputs; inputs that it does not have are left out."""
    names = [output.name for output in session.get_outputs()]
    wanted = {value.name for value in session.get_inputs()}
    feeds = {name: array for name, array in inputs.items() if name in wanted}
    if all(v.type != "tensor(bfloat16)" for v in (*session.get_inputs(), *session.get_outputs())):
        return dict(zip(names, session.run(names, feeds), strict=True))
    binding = session.io_binding()
    kept = []
    for name, array in feeds.items():
        array = np.ascontiguousarray(array).reshape(array.shape)
        kept.append(array)
        binding.bind_input(name, "cpu", 0, _element(array), array.shape, array.ctypes.data)
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    results = {}
    for name, value in zip(names, binding.get_outputs(), strict=True):
        results[name] = _array(value)
    return results


def _element(array: Array) -> Any:
    return onnx.TensorProto.BFLOAT16 if array.dtype == ml_dtypes.bfloat16 else array.dtype


def _array(value: Any) -> Array:
    if "bfloat16" not in value.data_type():
        return np.asarray(value.numpy())
    import ctypes

    size = int(np.prod(value.shape()))
    raw = (ctypes.c_uint16 * size).from_address(value.data_ptr()) if size else []
    words = np.array(raw, np.uint16)
    return words.view(ml_dtypes.bfloat16).reshape(value.shape())


def check(
    name: str,
    inputs: Sequence[Array],
    batch_axes: Sequence[int | None] = (),
    *,
    relative: float | None = None,
    absolute: float | None = None,
    profile: Profile = "portable",
    opset: int = 18,
    **attributes: Any,
) -> list[Array]:
    """Compares the operation's ONNX form with its meaning; returns the reference's results."""
    graph, _ = single(name, inputs, batch_axes, **attributes)
    feeds = {f"x{i}": array for i, array in enumerate(inputs)}
    return check_graph(
        graph, feeds, {}, relative=relative, absolute=absolute, profile=profile, opset=opset
    )


def check_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array],
    *,
    relative: float | None = None,
    absolute: float | None = None,
    profile: Profile = "portable",
    opset: int = 18,
) -> list[Array]:
    """Compares a graph's ONNX form with its meaning; returns the reference's results."""
    expected = evaluate(graph, feeds, weights)
    options = BuildOptions(opset=opset, profile=profile)
    model = build_model(graph, weights.__getitem__, options)
    found = run_onnx(model, feeds)
    for output, want in expected.items():
        assert_close(found[output], want, relative=relative, absolute=absolute)
    return list(expected.values())


def assert_close(
    found: Array, want: Array, *, relative: float | None = None, absolute: float | None = None
) -> None:
    """Equal dtype and shape; integers and booleans equal; floats within the dtype's tolerance."""
    assert found.dtype == want.dtype, (found.dtype, want.dtype)
    assert found.shape == want.shape, (found.shape, want.shape)
    dtype = DType.of(want)
    if not dtype.is_float:
        np.testing.assert_array_equal(found, want)
        return
    np.testing.assert_allclose(
        found.astype(np.float64),
        want.astype(np.float64),
        rtol=RELATIVE[dtype] if relative is None else relative,
        atol=ABSOLUTE[dtype] if absolute is None else absolute,
    )


def check_axis_rule(name: str, inputs: Sequence[Array], **attributes: Any) -> int:
    """Sees that every axis called apart or causal is, by changing positions of each input.

    Changing position p of an input along an apart axis may change the result at p alone; along a
    causal axis at p and after.  Returns how many axes were called apart or causal.
    """
    _, node = single(name, inputs, **attributes)
    base = evaluate_node(node, list(inputs), 1)
    claims = 0
    generator = np.random.default_rng(0)
    for operand, array in enumerate(inputs):
        for axis in range(array.ndim):
            fates = node.operation.axis_rule(
                operand, axis, node.input_types, node.attributes, node.result_types
            )
            assert len(fates) == len(base)
            for result, fate in enumerate(fates):
                if not isinstance(fate, Apart | Causal):
                    continue
                claims += 1
                length = array.shape[axis]
                assert base[result].shape[fate.axis] == length
                for position in range(length):
                    changed = array.copy()
                    index = (slice(None),) * axis + (position,)
                    changed[index] = _other(array[index], array, generator)
                    after = evaluate_node(
                        node, [*inputs[:operand], changed, *inputs[operand + 1 :]], 1
                    )
                    before = np.moveaxis(base[result], fate.axis, 0)
                    now = np.moveaxis(after[result], fate.axis, 0)
                    untouched = list(range(position))
                    if isinstance(fate, Apart):
                        untouched += list(range(position + 1, length))
                    assert before[untouched].tobytes() == now[untouched].tobytes(), (
                        f"{name}: input {operand} axis {axis} is not {fate}"
                    )
    return claims


def _other(part: Array, whole: Array, generator: np.random.Generator) -> Array:
    """Other values of the same kind: drawn from those that the whole array has."""
    pool = whole.reshape(-1)
    return generator.permutation(np.resize(generator.choice(pool, part.size), part.size)).reshape(
        part.shape
    )


def lowered_operators(graph: Graph, **options: Any) -> list[str]:
    """The ONNX operators that a graph without weights becomes."""
    model = build_model(graph, {}.__getitem__, BuildOptions(**options))
    return [node.op_type for node in model.graph.node]


def error_of(code: str, name: str, inputs: Sequence[Array], **attributes: Any) -> SexpgpuError:
    """The error that the call must raise."""
    with pytest.raises(SexpgpuError) as caught:
        single(name, inputs, **attributes)
    assert caught.value.code == code, caught.value.render()
    return caught.value


def feed_shapes(graph: Graph, batch: int) -> dict[str, tuple[int, ...]]:
    """The inputs' shapes for a number of records."""
    return {value.name: concrete(value.type.shape, batch) for value in graph.inputs}
