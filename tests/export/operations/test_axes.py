"""Axes that the rules call apart or causal, in the reference and in ONNX Runtime.

The proof that records of a batch do not meet, and `--at`, stand on these rules, so that they must
hold in the runtime as well, and for every value: 0 · NaN is no way to leave a position out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, Batch, Dimension, DType
from sexpgpu.export.onnx.build import BuildOptions
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.operations.operation import Apart, Causal, all_operations
from support.harness import assert_close, check_axis_rule
from support.limits import has_onnx
from support.panels import Entry, Panel
from support.samples import RECORDS, B, cases, samples_of

CASES = list(cases())
PROFILES: list[Profile] = ["portable", "fused"]
#: Operations that keep no axis of an operand, for they read none.
WITHOUT_AXES = {"constant", "full", "iota", "eye", "random-normal", "random-uniform"}
#: Operations of which ONNX Runtime gives no records that come from an operand.
WITHOUT_RECORDS = {*WITHOUT_AXES, "dropout"}


@pytest.mark.parametrize("name", list(all_operations()))
def test_axes_that_are_called_apart_are(name: str) -> None:
    claims = 0
    for sample in samples_of(name):
        for dtype in sample.dtypes:
            attributes = sample.node(dtype, RECORDS).attributes
            claims += check_axis_rule(name, sample.arrays(dtype), **attributes)
    assert (claims == 0) == (name in WITHOUT_AXES)


def _panel(name: str, dtype: DType, profile: Profile) -> tuple[Panel, Any]:
    """What can be run of an operation with the batch symbolic, and its session."""
    panel = Panel([s for s in samples_of(name, dtype) if has_onnx(s, dtype, B)], dtype)
    return panel, panel.session(BuildOptions(opset=23, profile=profile)) if panel.entries else None


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_record_is_the_same_alone_and_in_a_batch(
    name: str, dtype: DType, profile: Profile
) -> None:
    panel, session = _panel(name, dtype, profile)
    entries = [entry for entry in panel.entries if entry.is_apart and entry.has_records]
    assert bool(entries) == (name not in WITHOUT_RECORDS)
    if not entries:
        return
    together = panel.run(session, RECORDS, lambda e: e.sample.arrays(dtype))
    for record in range(RECORDS):
        alone = panel.run(session, 1, lambda e: _of_record(e, dtype, record))  # noqa: B023
        for entry in entries:
            for index, state in enumerate(entry.states()):
                whole, own = together[entry][index], alone[entry][index]
                if isinstance(state, Apart):
                    shape = entry.node.results[index].type.shape
                    whole = np.take(whole, _span(shape[state.axis], record), state.axis)
                # A product of one record may take another kernel, with other rounding.
                assert_close(own, whole, absolute=2e-5 if dtype is DType.F32 else None)


def _of_record(entry: Entry, dtype: DType, record: int) -> list[Array]:
    """The operands of one record."""
    return [
        array
        if tensor.batch_axis is None
        else np.take(array, _span(tensor.shape[tensor.batch_axis], record), tensor.batch_axis)
        for tensor, array in zip(entry.sample.tensors, entry.sample.arrays(dtype), strict=True)
    ]


def _span(length: Dimension, position: int) -> range:
    """The elements of one position of an axis; those of a batch are its records' blocks."""
    block = length.multiple if isinstance(length, Batch) else 1
    return range(position * block, (position + 1) * block)


@dataclass(frozen=True, slots=True)
class Claim:
    """That an operand's axis is apart, or causal, and is this axis of a result."""

    operand: int
    axis: int
    result: int
    fate: Apart | Causal

    @property
    def is_apart(self) -> bool:
        return isinstance(self.fate, Apart)


def _claims(entry: Entry) -> Iterator[Claim]:
    node = entry.node
    for operand, type in enumerate(node.input_types):
        for axis in range(type.rank):
            fates = node.operation.axis_rule(
                operand, axis, node.input_types, node.attributes, node.result_types
            )
            for index, fate in enumerate(fates):
                if isinstance(fate, Apart | Causal):
                    yield Claim(operand, axis, index, fate)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_positions_that_are_called_apart_do_not_meet_in_onnx_runtime(
    name: str, dtype: DType, profile: Profile
) -> None:
    """Wild values in the first or last position leave all others, or those before, as they were."""
    panel, session = _panel(name, dtype, profile)
    if not panel.entries:
        return
    before = panel.run(session, RECORDS, lambda e: e.sample.arrays(dtype))
    claims = {entry: list(_claims(entry)) for entry in panel.entries}
    for number in range(max(map(len, claims.values()))):
        for last in (False, True):
            made = {e: c[number] for e, c in claims.items() if number < len(c)}
            after = panel.run(session, RECORDS, lambda e: _disturbed(e, dtype, made.get(e), last))  # noqa: B023
            for entry, claim in made.items():
                was, now = (_left(side[entry], entry, claim, last) for side in (before, after))
                try:
                    # Vector kernels may round otherwise where one of their lanes is wild.
                    assert_close(now, was)
                except AssertionError as error:
                    raise AssertionError(f"{entry.sample} in {dtype}: {claim}: {error}") from None


def _positions(length: Dimension) -> int:
    return RECORDS if isinstance(length, Batch) else length


def _disturbed(entry: Entry, dtype: DType, claim: Claim | None, last: bool) -> list[Array]:
    arrays = entry.sample.arrays(dtype)
    if claim is None or not arrays[claim.operand].size:
        return arrays
    tensor = entry.sample.tensors[claim.operand]
    length = entry.node.input_types[claim.operand].shape[claim.axis]
    changed = arrays[claim.operand].copy()
    rows = np.moveaxis(changed, claim.axis, 0)
    span = _span(length, _positions(length) - 1 if last else 0)
    # What is not seen by a causal mask is multiplied by 0, and may be no more than finite.
    wild = tensor.free and claim.is_apart
    rows[span.start : span.stop] = _wild(changed, last) if wild else rows[span.start] * 0
    arrays[claim.operand] = changed
    return arrays


def _wild(array: Array, last: bool) -> Any:
    dtype = DType.of(array)
    if dtype.is_float:
        return np.inf if last else np.nan
    if dtype is DType.BOOL:
        return last
    limits = np.iinfo(array.dtype)
    return limits.max if last else limits.min


def _left(results: list[Array], entry: Entry, claim: Claim, last: bool) -> Array:
    """The positions of the result that must stay as they were."""
    array = results[claim.result]
    length = entry.node.results[claim.result].type.shape[claim.fate.axis]
    count = _positions(length)
    kept = range(count - 1) if last else range(1, count) if claim.is_apart else range(0)
    block = length.multiple if isinstance(length, Batch) else 1
    if not kept:
        return array[:0]
    return np.take(array, range(kept.start * block, kept.stop * block), claim.fate.axis)
