"""stop-gradient: x itself, of every dtype, and no part of a model that runs alone."""

from __future__ import annotations

import pytest

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import DType, TensorType
from sexpgpu.export.language.tensors import Tensor
from sexpgpu.export.operations.operation import all_operations
from support.arrays import assert_same, random_array
from support.harness import check
from support.programs import program, traced

NET = "(def record (fields :x (list f32 8)))\n(defn model (x) {body})"


@pytest.mark.parametrize("dtype", DType)
def test_it_is_its_operand_to_the_bit(dtype: DType) -> None:
    x = random_array(0, dtype, (3, 4), special=True)
    (result,) = check("stop-gradient", [x])
    assert_same(result, x)


def test_what_only_trains_is_no_part_of_a_model_that_runs_alone() -> None:
    only_train = {name for name, found in all_operations().items() if found.only_trains}
    assert only_train == {"dropout", "stop-gradient"}
    graph, _ = traced(NET.format(body="(relu (stop-gradient (dropout x 0.5)))"))
    assert [node.operation.name for node in graph.nodes] == ["relu"]


def test_it_is_part_of_training() -> None:
    compiled = program(NET.format(body="(stop-gradient x)") + "(defn loss (p r) (mean p))")
    with compiled.tracer.mode(training=True):
        before = compiled.tracer.made
        compiled.evaluator.apply(
            compiled.model, [Tensor(Value(TensorType(DType.F32, (8,)), name="x"))]
        )
        assert compiled.tracer.made == before + 1
