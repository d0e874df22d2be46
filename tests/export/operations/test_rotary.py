"""rotary: meaning, ONNX form in both profiles, rules and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.operations.operation import Rows, all_operations
from sexpgpu.export.operations.rotary import rotation_of
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import check, check_axis_rule, error_of, lowered_operators, single

FLOATS = [DType.F32, DType.F64, DType.BF16]


def values(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return generator.uniform(-2, 2, shape).astype(dtype.numpy)


def turn(x: Array, positions: Array, turned: int, attributes: dict[str, Any]) -> Array:
    """By loops, in f64; positions broadcast to x without its last axis."""
    result = x.astype(np.float64)
    positions = np.broadcast_to(positions, x.shape[:-1])
    for index in np.ndindex(x.shape[:-1]):
        for j in range(turned // 2):
            frequency = attributes["base"] ** (-2 * j / turned)
            if attributes["scaling"] == "linear":
                frequency /= attributes["factor"]
            if attributes["scaling"] == "llama3":
                frequency = llama3(frequency, attributes)
            if attributes["scaling"] == "yarn":
                frequency = yarn(j, frequency, turned, attributes)
            angle = int(positions[index]) * frequency
            a, b = (2 * j, 2 * j + 1) if attributes["interleaved"] else (j, j + turned // 2)
            p, q = float(x[index][a]), float(x[index][b])
            gain = attributes["attention-factor"]
            if gain is None:
                stretched = attributes["scaling"] == "yarn"
                gain = 0.1 * math.log(attributes["factor"]) + 1 if stretched else 1
            result[index][a] = gain * (p * math.cos(angle) - q * math.sin(angle))
            result[index][b] = gain * (q * math.cos(angle) + p * math.sin(angle))
    return result


def llama3(frequency: float, attributes: dict[str, Any]) -> float:
    """As the code that came with Llama 3.1 has it."""
    low, high = attributes["low"], attributes["high"]
    wave = 2 * math.pi / frequency
    if wave < attributes["original"] / high:
        return frequency
    if wave > attributes["original"] / low:
        return float(frequency / attributes["factor"])
    smooth = (attributes["original"] / wave - low) / (high - low)
    return float((1 - smooth) * frequency / attributes["factor"] + smooth * frequency)


def yarn(j: int, frequency: float, turned: int, attributes: dict[str, Any]) -> float:
    """As the code that came with the paper has it."""
    low, high = (
        turned
        * math.log(attributes["original"] / (attributes[name] * 2 * math.pi))
        / (2 * math.log(attributes["base"]))
        for name in ("beta-fast", "beta-slow")
    )
    if attributes["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, turned - 1)
    if low == high:
        high += 0.001
    ramp = min(max((j - low) / (high - low), 0), 1)
    return frequency * (1 - ramp) + frequency / attributes["factor"] * ramp


@st.composite
def rotations(draw: st.DrawFn) -> tuple[list[Array], list[int | None], dict[str, Any]]:
    dtype = draw(st.sampled_from(FLOATS))
    lead = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    time, width = draw(st.integers(0, 5)), draw(st.integers(1, 7))
    tensors = [values((*lead, time, width), dtype)]
    batched = bool(lead) and draw(st.booleans())
    axes: list[int | None] = [0 if batched else None]
    attributes: dict[str, Any] = {
        "base": draw(st.sampled_from([10000.0, 2.0])),
        "interleaved": draw(st.booleans()),
        "dimensions": draw(st.sampled_from(range(0, width + 1, 2))),
        "scaling": draw(st.sampled_from([None, "linear", "llama3", "yarn"])),
        "factor": draw(st.sampled_from([1.0, 8.0])),
        "low": 1.0,
        "high": 4.0,
        "original": draw(st.sampled_from([1, 16, 64, 4096])),
        "beta-fast": draw(st.sampled_from([4.0, 32.0])),
        "beta-slow": draw(st.sampled_from([0.5, 4.0])),
        "truncate": draw(st.booleans()),
        "attention-factor": draw(st.sampled_from([None, None, 0.7])),
        "length": draw(st.none() | st.integers(max(time, 1), 9)),
        "given": (),
    }
    if width % 2 == 0 and attributes["dimensions"] == width:
        attributes["dimensions"] = None
    if draw(st.booleans()):
        shapes = [(time,)]
        if lead:
            shapes += [(lead[0], time), (lead[0], 1, 1, time)]
        shape = draw(st.sampled_from(shapes))
        generator = np.random.default_rng(draw(st.integers(0, 99)))
        kind = draw(st.sampled_from([np.int32, np.int64]))
        tensors.append(generator.integers(-10, 100, shape).astype(kind))
        axes.append(0 if batched and len(shape) > 1 else None)
        attributes["given"] = ("positions",)
    return tensors, axes, attributes


@given(rotations(), st.sampled_from([("portable", 18), ("portable", 23), ("fused", 23)]))
def test_rotary(
    case: tuple[list[Array], list[int | None], dict[str, Any]], target: tuple[Profile, int]
) -> None:
    tensors, axes, attributes = case
    (found,) = check("rotary", tensors, axes, profile=target[0], opset=target[1], **attributes)
    x = tensors[0]
    positions = np.arange(x.shape[-2])
    if len(tensors) > 1:
        positions = tensors[1]
        if positions.ndim > 1:
            ones = [1] * (x.ndim - 3)
            positions = positions.reshape(positions.shape[0], *ones, positions.shape[-1])
        if attributes["length"] is not None:
            positions = positions.clip(0, attributes["length"] - 1)
    turned = x.shape[-1] if attributes["dimensions"] is None else attributes["dimensions"]
    want = turn(x, positions, turned, attributes)
    # Cosines and sines are rounded to f32; for bf16 so is the result, to half of 2^-7 of up to 4.
    absolute = {DType.F32: 1e-6, DType.F64: 1e-12, DType.BF16: 1e-2}[DType.of(x)]
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=0, atol=absolute)


PARAMETERS = st.fixed_dictionaries(
    {
        "factor": st.sampled_from([1.0, 2.0, 4.0, 40.0]),
        "original_max_position_embeddings": st.sampled_from([1, 64, 4096, 32768, 10**6]),
    },
    optional={
        "beta_fast": st.sampled_from([2, 32.0]),
        "beta_slow": st.sampled_from([0.5, 1]),
        "truncate": st.booleans(),
        "attention_factor": st.sampled_from([0.5, 1.0]),
    },
)


@given(PARAMETERS, st.sampled_from([2.0, 100.0, 1e4, 1e6]), st.sampled_from([2, 6, 64, 128]))
def test_yarn_is_that_of_transformers(parameters: dict[str, Any], base: float, width: int) -> None:
    ropes = pytest.importorskip("transformers.modeling_rope_utils")
    config = pytest.importorskip("transformers").LlamaConfig(
        head_dim=width,
        max_position_embeddings=2**20,
        rope_parameters={**parameters, "rope_type": "yarn", "rope_theta": base},
    )
    expected, gain = ropes.ROPE_INIT_FUNCTIONS["yarn"](config)
    names = {"original_max_position_embeddings": "original"}
    attributes = {names.get(k, k.replace("_", "-")): v for k, v in parameters.items()}
    _, node = single(
        "rotary", [values((1, width), DType.F32)], scaling="yarn", base=base, **attributes
    )
    rotation = rotation_of((1, width), node.attributes)
    np.testing.assert_allclose(rotation.frequencies(), expected.numpy(), rtol=1e-6)
    assert rotation.gain == pytest.approx(gain, rel=1e-12)


def test_far_positions_keep_their_angles() -> None:
    # In f32 the angle of position 2^24 + 1 is that of 2^24.
    x = np.tile(np.array([1.0, 0.0], np.float32), (2, 1))
    positions = np.array([2**24, 2**24 + 1])
    (found,) = check("rotary", [x, positions], given=("positions",))
    want = [[math.cos(p), math.sin(p)] for p in positions.tolist()]
    np.testing.assert_allclose(found, want, atol=1e-7)


def test_given_positions_read_the_window_s_table() -> None:
    x = values((1, 2, 8, 6), DType.F32)
    (whole,) = check("rotary", [x])
    positions = np.array([[5, 5]], np.int32)
    (rows,) = check("rotary", [x[:, :, [5, 5]], positions], given=("positions",), length=8)
    assert rows.tobytes() == np.ascontiguousarray(whole[:, :, [5, 5]]).tobytes()


def restrict(axis: int, shape: tuple[Any, ...] | None, reduced: int | None) -> Any:
    """What becomes of x [batch, 2, 8, 6] for 2 positions of an axis."""
    batch = Batch()
    result = TensorType(DType.F32, (batch, 2, 8, 6))
    x = [batch, 2, 8, 6]
    x[axis] = 2
    inputs = [Value(result.with_shape(x))]
    if shape is not None:
        inputs.append(Value(TensorType(DType.I32, shape)))
    names = ("positions",) if shape is not None else ()
    tensors = [values((1, 2, 8, 6), DType.F32)] + ([np.zeros(8, np.int32)] if names else [])
    _, node = single("rotary", tensors, given=names)
    rows = Rows(
        inputs=tuple(inputs),
        input_axes=(axis, reduced)[: len(inputs)],
        result=result,
        axis=axis,
        count=2,
        positions=Value(TensorType(DType.I32, (batch, 2))),
        causal=False,
    )
    changed = all_operations()["rotary"].restrict(rows, node.attributes)
    if changed is None:
        return None
    types = [value.type for value in changed[0]]
    assert all_operations()["rotary"].infer(types, changed[1]) == [result.with_shape(x)]
    return changed[1]


def test_rows() -> None:
    batch = Batch()
    attributes = restrict(2, None, None)
    assert attributes["length"] == 8
    assert attributes["given"] == ("positions",)
    assert restrict(2, (batch, 2), 1)["length"] is None
    assert restrict(2, (batch, 1, 1, 2), 0)["length"] is None
    assert restrict(2, (8,), None) is None
    assert restrict(1, (8,), None)["given"] == ("positions",)
    assert restrict(1, None, None)["given"] == ()


def test_axes() -> None:
    x, places = values((2, 3, 4, 6), DType.F32), np.array([[0, 3, 1, 2], [2, 2, 0, 1]])
    assert check_axis_rule("rotary", [x]) == 3
    assert check_axis_rule("rotary", [x, places], given=("positions",)) == 5
    assert check_axis_rule("rotary", [x, places[0]], given=("positions",), length=4) == 4


def test_operators() -> None:
    graph, _ = single("rotary", [values((1, 2, 4, 6), DType.F32)])
    assert "RotaryEmbedding" in lowered_operators(graph, opset=23, profile="fused")
    portable = lowered_operators(graph)
    assert portable == ["Split", "Mul", "Mul", "Sub", "Mul", "Mul", "Add", "Concat"]


def test_errors() -> None:
    x = values((2, 3, 4, 6), DType.F32)
    error_of("E-SHAPE-001", "rotary", [x[0, 0, 0]])  # rotary 1
    for axis in (2, 3):
        with pytest.raises(SexpgpuError) as caught:  # rotary 1, rotary 4
            single("rotary", [x], [axis])
        assert caught.value.code == "E-SHAPE-002"
    error_of("E-VALUE-001", "rotary", [x[..., :5]])  # rotary 2
    for wrong in (-2, 3, 8):
        error_of("E-VALUE-001", "rotary", [x], dimensions=wrong)  # rotary 2
    for shape in ((), (3,), (3, 4), (2, 3, 4)):
        positions = np.zeros(shape, np.int32)
        error_of("E-SHAPE-001", "rotary", [x, positions], given=("positions",))  # rotary 3
    positions = np.zeros((4, 4), np.int32)
    error_of("E-SHAPE-001", "rotary", [x[0, 0], positions], given=("positions",))  # rotary 3
    error_of("E-VALUE-001", "rotary", [x], length=3)  # rotary 4
    for name in ("base", "factor", "low"):
        for wrong in (0.0, -1.0, math.inf, math.nan):
            error_of("E-VALUE-001", "rotary", [x], **{name: wrong})  # rotary 5
    error_of("E-VALUE-001", "rotary", [x], high=1.0)  # rotary 5
    error_of("E-VALUE-001", "rotary", [x], original=0)  # rotary 5
    for pair in ((2.0, 1.0), (0.0, 1.0), (1.0, 1e7), (math.nan, 1.0), (1.0, math.nan)):
        betas = dict(zip(("beta-slow", "beta-fast"), pair, strict=True))
        error_of("E-VALUE-001", "rotary", [x], **betas)  # rotary 6
    for wrong in (0.0, -1.0, math.inf, math.nan):
        error_of("E-VALUE-001", "rotary", [x], **{"attention-factor": wrong})  # rotary 6
    error_of("E-VALUE-001", "rotary", [x], scaling="yarn", base=1.0)  # rotary 6
    error_of("E-VALUE-001", "rotary", [x], length=0)  # rotary 7
    places = np.zeros(4, np.int32)
    error_of(  # rotary 7
        "E-VALUE-001", "rotary", [x, places], given=("positions",), length=2**40
    )
