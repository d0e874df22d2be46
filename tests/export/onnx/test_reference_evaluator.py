"""A second runtime, onnx's own reference evaluator, over every operation and dtype.

What ONNX Runtime takes kindly, an axis from the end or an empty tensor, others may not.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import DType
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.schemas.errors import SexpgpuError
from support.harness import ABSOLUTE, RELATIVE
from support.samples import RECORDS, Sample, all_samples, call, numbers, whole

PAGE = Path(__file__).parents[3] / "docs" / "runtimes" / "reference.md"

#: What it gets wrong itself: it cannot reshape what a transposed convolution of groups with a
#: stride and padding gives.
NOT_THERE = ("(conv-transpose [batch, 4, 7] [4, 3, 2] :groups 2 :stride (list 3) :padding 2)",)


def takes_bf16(sample: Sample, dtype: DType) -> bool:
    """Whether numbers of bf16 are in it, of which the evaluator has a NumPy dtype of its own."""
    return dtype is DType.BF16 or "bf16" in str(sample)


@pytest.mark.parametrize("name", sorted({sample.operation.name for sample in all_samples()}))
def test_the_reference_evaluator_agrees(name: str) -> None:
    compared = 0
    for sample in all_samples():
        if sample.operation.name != name or str(sample) in NOT_THERE:
            continue
        for dtype in sample.dtypes:
            if not takes_bf16(sample, dtype):
                compared += compare(sample, dtype)
    assert compared or all_operations()[name].random


def compare(sample: Sample, dtype: DType) -> bool:
    """Whether the sample has a form in ONNX, which then gives the numbers of its meaning."""
    graph = sample.graph(dtype)
    try:
        model = build_model(graph, dict[str, np.ndarray]().__getitem__, BuildOptions())
    except SexpgpuError as error:
        # Random numbers have none, nor has a batch that no input tells the size of.
        if error.code != "E-ONNX-001":
            raise
        return False
    arrays = {f"x{i}": array for i, array in enumerate(sample.arrays(dtype))}
    with np.errstate(all="ignore"):
        found = dict(zip(graph.outputs, ReferenceEvaluator(model).run(None, arrays), strict=True))
    for output, want in evaluate(graph, arrays, {}, RECORDS).items():
        array = np.asarray(found[output])
        message = f"{sample} {dtype}"
        assert (array.shape, array.dtype) == (want.shape, want.dtype), message
        if want.dtype.kind == "f":
            kind = DType.of(want)
            np.testing.assert_allclose(array, want, RELATIVE[kind], ABSOLUTE[kind], err_msg=message)
        else:
            np.testing.assert_array_equal(array, want, err_msg=message)
    return True


def test_a_long_axis_is_gathered_by_what_the_page_hands_it() -> None:
    sample = call("take-along", numbers(3, 65), whole(0, 65, 3, 2, dtype=DType.I64), axis=1)
    graph = sample.graph(DType.F32)
    model = build_model(graph, dict[str, np.ndarray]().__getitem__, BuildOptions())
    arrays = {f"x{i}": array for i, array in enumerate(sample.arrays(DType.F32))}
    names: dict[str, Any] = {"numpy": np}
    lines = PAGE.read_text().partition("    from onnx.reference.op_run")
    exec(textwrap.dedent(lines[1] + lines[2]), names)
    evaluator = ReferenceEvaluator(model, new_ops=[names["GatherElements"]])
    (found,) = evaluator.run(None, arrays)
    np.testing.assert_array_equal(found, np.take_along_axis(arrays["x0"], arrays["x1"], 1))
