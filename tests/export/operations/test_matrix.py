"""Every sample in ONNX Runtime in every opset and profile, through model.json, and in bf16."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.document import ModelFile, read_model, write_model
from sexpgpu.export.graph.graph import Node, make_node
from sexpgpu.export.graph.reference import evaluate, evaluate_node
from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import assert_close, check_graph
from support.limits import WITHOUT_ONNX, has_onnx
from support.panels import Panel
from support.samples import RECORDS, B, Sample, all_samples, cases, samples_of

TARGETS: list[tuple[Profile, int]] = [
    ("portable", 18),
    ("portable", 21),
    ("portable", 23),
    ("portable", 25),
    ("fused", 23),
]
CASES = list(cases())


#: Families whose results are sums of products of numbers up to 2: where they cancel, the error is
#: of the size of what is added, not of the sum.
_SUMS = {"linear", "attention", "neural", "recurrence", "reduce", "normalization"}


def absolute(sample: Sample, dtype: DType, *, rounded: bool = False) -> float | None:
    """The absolute error that a sample may have; None for that of its dtype.

    With `rounded`, or its own precision of bf16, what it computes on the way is rounded to bf16,
    where a last bit of f32 may decide between two neighbours.
    """
    if dtype is not DType.F32 or sample.operation.family not in _SUMS:
        return None
    rounded = rounded or sample.attributes.get("precision") == "bf16"
    return 2e-2 if rounded else 2e-5


@pytest.mark.parametrize(("profile", "opset"), TARGETS)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_onnx_runtime_gives_what_the_reference_gives(
    name: str, dtype: DType, profile: Profile, opset: int
) -> None:
    options = BuildOptions(opset=opset, profile=profile)
    for batch in (B, RECORDS):
        samples = [s for s in samples_of(name, dtype) if has_onnx(s, dtype, batch)]
        if not samples:
            assert name in WITHOUT_ONNX
            continue
        panel = Panel(samples, dtype, batch)
        session = panel.session(options)
        for records in (RECORDS, 1) if batch == B else (RECORDS,):
            found = panel.run(session, records, lambda e: e.sample.arrays(dtype, records))  # noqa: B023
            for entry, results in found.items():
                want = panel.reference(entry, records)
                _assert_all_close(entry.sample, dtype, results, want)


def _assert_all_close(
    sample: Sample, dtype: DType, found: list[Array], want: list[Array], *, rounded: bool = False
) -> None:
    for one, other in zip(found, want, strict=True):
        try:
            assert_close(one, other, absolute=absolute(sample, dtype, rounded=rounded))
        except AssertionError as error:
            raise AssertionError(f"{sample} in {dtype}: {error}") from None


@pytest.mark.parametrize("name", WITHOUT_ONNX)
def test_what_has_no_onnx_form_says_so(name: str) -> None:
    refused = [
        (sample, dtype, batch)
        for sample in samples_of(name)
        for dtype in sample.dtypes
        for batch in (B, RECORDS)
        if not has_onnx(sample, dtype, batch)
    ]
    assert refused
    for sample, dtype, batch in refused:
        for profile, opset in TARGETS:
            options = BuildOptions(opset=opset, profile=profile)
            with pytest.raises(SexpgpuError) as caught:
                build_model(sample.graph(dtype, batch), dict[str, Array]().__getitem__, options)
            assert caught.value.code == "E-ONNX-001"


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_model_json_keeps_the_bits(name: str, dtype: DType) -> None:
    for sample in samples_of(name, dtype):
        for batch in (B, RECORDS):
            graph = sample.graph(dtype, batch)
            data = write_model(ModelFile(graph), "test")
            again = read_model(data, "model.json").graph
            assert write_model(ModelFile(again), "test") == data
            feeds = {f"x{i}": array for i, array in enumerate(sample.arrays(dtype, RECORDS))}
            want = evaluate(graph, feeds, {}, RECORDS)
            for output, array in evaluate(again, feeds, {}, RECORDS).items():
                assert array.tobytes() == want[output].tobytes(), f"{sample} in {dtype}"


F32_SAMPLES = [sample for sample in all_samples() if DType.F32 in sample.dtypes]
PRODUCTS = [
    sample
    for sample in F32_SAMPLES
    if any(attribute.name == "precision" for attribute in sample.operation.signature.attributes)
]


@pytest.mark.parametrize(("profile", "opset"), [TARGETS[0], TARGETS[-1]])
@pytest.mark.parametrize("sample", PRODUCTS, ids=str)
def test_products_in_bf16_are_those_of_the_reference(
    sample: Sample, profile: Profile, opset: int
) -> None:
    graph = set_precision(sample.graph(DType.F32), "bf16")
    feeds = {f"x{i}": array for i, array in enumerate(sample.arrays(DType.F32))}
    close = absolute(sample, DType.F32, rounded=True)
    check_graph(graph, feeds, {}, absolute=close, profile=profile, opset=opset)


def _in_f32(sample: Sample) -> Node:
    """The sample's node, its products in f32 even where it asks for bf16."""
    node = sample.node(DType.F32)
    return make_node(node.operation, node.inputs, {**node.attributes, "precision": "f32"})


@pytest.mark.parametrize("name", ["matmul", "einsum", "conv", "conv-transpose"])
def test_a_product_in_bf16_is_that_of_rounded_operands(name: str) -> None:
    for sample in PRODUCTS:
        if sample.operation.name != name or len(sample.tensors) != 2:
            continue
        graph = set_precision(sample.graph(DType.F32), "bf16")
        arrays = sample.arrays(DType.F32)
        rounded = [a.astype(DType.BF16.numpy).astype(np.float32) for a in arrays]
        (found,) = evaluate_node(graph.nodes[0], arrays, RECORDS)
        (again,) = evaluate_node(graph.nodes[0], rounded, RECORDS)
        (exact,) = evaluate_node(_in_f32(sample), rounded, RECORDS)
        assert found.tobytes() == again.tobytes() == exact.tobytes(), str(sample)


def test_nothing_but_products_has_a_precision() -> None:
    changed = set()
    for sample in F32_SAMPLES:
        graph = sample.graph(DType.F32)
        if set_precision(graph, "bf16").nodes != graph.nodes:
            changed.add(sample.operation.name)
    products = {"matmul", "einsum", "conv", "conv-transpose", "attention", "lstm", "gru"}
    assert changed == products | {"scan"}
