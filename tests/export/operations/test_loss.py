"""cross-entropy: meaning, ONNX form, rules and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from support.harness import check, check_axis_rule, error_of


def values(shape: tuple[int, ...], dtype: DType) -> Array:
    generator = np.random.default_rng(list(shape))
    return generator.uniform(-4, 4, shape).astype(dtype.numpy)


@given(
    st.data(),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(1, 5),
    st.sampled_from([DType.F32, DType.F64, DType.BF16]),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([18, 23]),
)
def test_cross_entropy(
    data: st.DataObject, lead: list[int], classes: int, dtype: DType, kind: type, opset: int
) -> None:
    logits = values((*lead, classes), dtype)
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    targets = generator.integers(-2, classes + 2, lead).astype(kind)
    batch = 0 if lead and lead[0] and data.draw(st.booleans()) else None
    ignore = data.draw(st.none() | st.sampled_from([-1, 0, classes]))
    smoothing = data.draw(st.sampled_from([0.0, 0.125, 1.0]))
    (found,) = check(
        "cross-entropy",
        [logits, targets],
        [batch, batch],
        ignore=ignore,
        smoothing=smoothing,
        opset=opset,
    )
    want = np.zeros(lead)
    for index in np.ndindex(*lead):
        row = [float(value) for value in logits[index]]
        total = math.log(sum(math.exp(value) for value in row))
        target = int(targets[index])
        if target == ignore:
            continue
        if not 0 <= target < classes:
            want[index] = math.nan
            continue
        shared = sum(total - value for value in row) / classes
        want[index] = (1 - smoothing) * (total - row[target]) + smoothing * shared
    # bf16 results of up to 10 are rounded to within 2^-5.
    absolute = {DType.F32: 1e-5, DType.F64: 1e-12, DType.BF16: 4e-2}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=0, atol=absolute)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.BF16])
def test_large_logits_are_safe(dtype: DType) -> None:
    logits = np.array([[1e30, 0, -np.inf], [0, -1e30, 1e30]]).astype(dtype.numpy)
    (found,) = check("cross-entropy", [logits, np.array([0, 2])])
    assert found.tolist() == [0, 0]


@pytest.mark.parametrize("lead", [(), (3,)])
def test_the_classes_are_the_records(lead: tuple[int, ...]) -> None:
    """As a contrastive loss has them; what a record is compared with is a batch of any size."""
    logits = values((*lead, 3), DType.F32)
    targets = np.array([0, 4, 2]) if lead else np.array(1)
    (found,) = check("cross-entropy", [logits, targets], [len(lead)], ignore=2, smoothing=0.1)
    (known,) = check("cross-entropy", [logits, targets], ignore=2, smoothing=0.1)
    np.testing.assert_array_equal(found, known)


def test_axes() -> None:
    logits, targets = values((2, 3, 4), DType.F32), np.array([[0, 1, 2], [3, 0, 1]])
    assert check_axis_rule("cross-entropy", [logits, targets], smoothing=0.1) == 4


def test_errors() -> None:
    logits = values((2, 3), DType.F32)
    error_of("E-SHAPE-001", "cross-entropy", [logits, np.zeros(3, int)])  # cross-entropy 1
    error_of("E-SHAPE-001", "cross-entropy", [logits[0, 0], np.zeros((), int)])  # cross-entropy 1
    error_of("E-SHAPE-001", "cross-entropy", [logits[:, :0], np.zeros(2, int)])  # cross-entropy 1
    for smoothing in (-0.1, 1.1, math.nan):
        error_of(  # cross-entropy 2
            "E-VALUE-001", "cross-entropy", [logits, np.zeros(2, int)], smoothing=smoothing
        )
