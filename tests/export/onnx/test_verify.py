"""Verification: right artifacts pass, and whatever computes something else does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.onnx import verify
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.difference import Difference
from sexpgpu.export.onnx.lowering import Lowering, OnnxValue
from sexpgpu.export.onnx.verify import Verification, verify_model
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fixed import fix_batch
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.export.passes.prune import remove_dead
from sexpgpu.schemas.errors import SexpgpuError
from support.architectures import ARCHITECTURES
from support.arrays import SEEDS
from support.programs import GPT, traced
from support.random_graphs import OPERATIONS, random_graph


def verified(
    graph: Graph, weights: Mapping[str, Array], tmp_path: Path, **options: Any
) -> Verification:
    """What verifying the graph's ONNX file says."""

    def build(part: Graph) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        model = build_model(part, weights.__getitem__, BuildOptions())
        path.write_bytes(model.SerializeToString())
        return path

    return verify_model(build(graph), graph, weights.__getitem__, build, **options)


def verified_program(text: str, tmp_path: Path, **options: Any) -> Verification:
    return verified(*traced(text), tmp_path, **options)


def simple(expression: str, *inputs: str, parts: str = "") -> str:
    """A model of an expression of its inputs a, b, …, of dtypes and shapes as in a record."""
    fields = " ".join(
        f":{letter} (list {given})" for letter, given in zip("abc", inputs, strict=False)
    )
    return f"""
(def record (fields {fields}))
(defmodel net () (parts {parts}) (apply ({" ".join("abc"[: len(inputs)])}) {expression}))
(def model (net))"""


# What is right


@pytest.mark.parametrize(
    "other",
    [
        "(gelu a)",
        "(* a 0.5)",
        "(* 0.5 a)",
        "(gelu (* 0.5 a) :tanh true)",
        "(+ (tanh a) 1.0)",
        "(* a (* a 0.044715))",
        "(+ (erf (/ a (sqrt 2.0))) 1.0)",
    ],
)
@pytest.mark.parametrize("form", ["(+ {g} {o})", "(+ {o} {g})", "(list :p {g} :q {o})"])
@pytest.mark.parametrize("tanh", ["", " :tanh true"])
def test_what_gelu_is_made_of_may_be_read_by_others(
    tanh: str, form: str, other: str, tmp_path: Path
) -> None:
    """ONNX Runtime fuses gelu, and has to leave what others read."""
    body = form.format(g=f"(gelu a{tanh})", o=other)
    verified_program(simple(body, "f32 4 8"), tmp_path)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_pass(name: str, precision: Any, tmp_path: Path) -> None:
    graph, weights = traced(ARCHITECTURES[name])
    found = verified(set_precision(graph, precision), weights, tmp_path)
    assert found.checked == "the whole model"
    assert found.runs == 2
    assert set(found.outputs) == set(graph.outputs)


def test_the_gather_for_at_passes(tmp_path: Path) -> None:
    graph, weights = traced(GPT)
    assert verified(gather_at(graph), weights, tmp_path).runs == 2


def test_a_fixed_batch_has_runs_of_its_own(tmp_path: Path) -> None:
    graph, weights = traced(GPT)
    assert verified(fix_batch(graph, 2), weights, tmp_path, fixed=True).runs == 4


@settings(max_examples=30)
@given(SEEDS)
def test_any_graph_passes(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    made = random_graph(seed)
    made.grow(OPERATIONS, int(made.generator.integers(1, 6)))
    made.graph.outputs = {f"y{i}": value for i, value in enumerate(made.values[-3:])}
    try:
        verified(remove_dead(made.graph), made.weights, tmp_path_factory.mktemp("graph"))
    except SexpgpuError as error:
        # Operations that ONNX Runtime lacks for a dtype are refused while lowering.
        if error.code != "E-ONNX-001":
            raise


@pytest.mark.parametrize(
    "expression",
    ["(sqrt a)", "(log (neg (abs a)))", "(/ a (zeros (list 1)))", "(+ (/ 1.0 a) (exp (* a 50.0)))"],
)
def test_nan_and_infinity_pass(expression: str, tmp_path: Path) -> None:
    assert verified_program(simple(expression, "f32 8"), tmp_path).runs == 2


def test_what_cancels_to_rounding_passes(tmp_path: Path) -> None:
    # On constant inputs nothing is left but the rounding of the mean, a little differently summed.
    found = verified_program(simple("(layer-normalize (* a 0.1))", "f32 300"), tmp_path)
    assert found.runs == 2


def test_a_deep_model_in_bf16_passes(tmp_path: Path) -> None:
    graph, weights = traced(GPT, {"depth": 12, "dim": 32})
    found = verified(set_precision(graph, "bf16"), weights, tmp_path)
    assert 0 < found.outputs["output"].relative < found.outputs["output"].tolerance < 2.0**-4


# Which inputs are tried


def test_indices_that_were_computed_with(tmp_path: Path) -> None:
    text = simple("(take w (+ a 30))", "i32 4", parts="w (param (list 40 3))")
    found = verified_program(text, tmp_path)
    assert (found.runs, found.checked) == (2, "the whole model")


def test_a_model_that_takes_no_inputs_that_are_tried(tmp_path: Path) -> None:
    text = simple("(take w (+ a 999))", "i32 4", parts="w (param (list 1000 3))")
    assert verified_program(text, tmp_path).runs == 2
    text = simple("(take w (- a 999))", "i32 4", parts="w (param (list 40 3))")
    found = verified_program(text, tmp_path)
    assert found.runs == 0
    assert found.checked == "nothing but that the file loads: the reference took no inputs"


def test_what_one_record_may_not_be_others_are_tried_as(tmp_path: Path) -> None:
    # -8 and 8 are outside of w, whatever range whole numbers have.
    text = simple("(take w (cast a i32))", "f32 4", parts="w (param (list 6 3))")
    assert verified_program(text, tmp_path).runs == 2


def test_a_large_model_begins_with_one_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verify, "_COPIED", 0)
    monkeypatch.setattr(verify, "_LARGE", 0)
    # The first record by itself, and in the call after it alone and with the others.
    assert verified_program(GPT, tmp_path).runs == 3


def test_each_record_of_a_call_is_compared_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[int, ...]] = []

    def compare(name: str, found: Array, want: Array, rounded: object) -> Difference:
        seen.append(found.shape)
        return Difference()

    monkeypatch.setattr(verify, "compare", compare)
    verified_program(simple("(abs a)", "f32 8"), tmp_path)
    assert seen == [(1, 8)] * 4


def test_records_that_meet_are_compared_as_one(tmp_path: Path) -> None:
    found = verified_program(simple("(- a (mean a :axis 0))", "f32 8"), tmp_path)
    assert (found.runs, found.checked) == (5, "the whole model")


# What is wrong


def alter(monkeypatch: pytest.MonkeyPatch, name: str, operator: str, other: float) -> None:
    """The operation is lowered wrongly: an operator and a number come after it."""
    operation = all_operations()[name]
    right = type(operation).lower

    def lower(
        self: Any,
        onnx: Lowering,
        inputs: Sequence[OnnxValue],
        attributes: Any,
        results: Sequence[TensorType],
    ) -> Sequence[str]:
        (made,) = right(self, onnx, inputs, attributes, results)
        return [onnx.add(operator, made, onnx.scalar(other, results[0].dtype))]

    monkeypatch.setattr(type(operation), "lower", lower)


def refused(text: str, tmp_path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        verified_program(text, tmp_path)
    assert caught.value.code == "E-VERIFY-001"
    assert caught.value.exit_code == 3
    return caught.value


@pytest.mark.parametrize(
    ("dtype", "operation", "operator", "other"),
    [
        (DType.F32, "abs", "Mul", 1.0001),
        (DType.F64, "abs", "Mul", 1 + 1e-11),
        (DType.BF16, "abs", "Mul", 1.02),
        (DType.I32, "abs", "Add", 1),
        (DType.I64, "abs", "Add", 1),
        (DType.BOOL, "logical-not", "Xor", 1),
    ],
)
def test_a_wrong_operation_is_caught(
    dtype: DType,
    operation: str,
    operator: str,
    other: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    text = simple(f"({operation} a)", f"{dtype} 8")
    assert verified_program(text, tmp_path).runs == 2
    alter(monkeypatch, operation, operator, other)
    error = refused(text, tmp_path)
    assert "`output`" in error.message
    assert error.came is not None


@pytest.mark.parametrize("name", ["gelu", "softmax", "layer-normalize", "matmul", "attention"])
def test_a_small_fault_deep_in_a_model_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alter(monkeypatch, name, "Mul", 1.001)
    text = simple("(softmax a)", "f32 8") if name == "softmax" else GPT
    refused(text, tmp_path)


def test_the_other_formula_of_gelu_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gelu = all_operations()["gelu"]
    right = type(gelu).lower
    monkeypatch.setattr(
        type(gelu),
        "lower",
        lambda self, onnx, inputs, attributes, results: right(
            self, onnx, inputs, {**attributes, "tanh": True}, results
        ),
    )
    refused(GPT, tmp_path)


def test_a_fault_at_an_edge_alone_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Random numbers seldom are over 6, so that only the edges see it.
    alter(monkeypatch, "relu", "Min", 6.0)
    refused(simple("(relu a)", "f32 8"), tmp_path)


# When the time is up


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second goes by whenever somebody looks."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(verify.time, "monotonic", lambda: float(next(seconds)))


def test_what_the_reference_had_computed_is_compared(clock: None, tmp_path: Path) -> None:
    graph, _ = traced(GPT)
    found = verified_program(GPT, tmp_path, budget=20)
    assert found.runs == 1
    assert found.checked == (
        f"the first 20 of {len(graph.nodes)} operations, which the reference computed in "
        "20 seconds,"
    )
    assert found.outputs
    assert not set(found.outputs) & set(graph.outputs)
    assert any(name.startswith("blocks.0") for name in found.outputs)


def test_a_wrong_operation_is_caught_in_a_part(
    clock: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alter(monkeypatch, "layer-normalize", "Mul", 1.001)
    with pytest.raises(SexpgpuError) as caught:
        verified_program(GPT, tmp_path, budget=20)
    assert caught.value.code == "E-VERIFY-001"
    assert "`blocks.0" in caught.value.message


def test_after_a_whole_run_no_part_is_compared(
    clock: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verify, "_COPIED", 0)
    monkeypatch.setattr(verify, "_LARGE", 0)
    graph, _ = traced(GPT)
    found = verified_program(GPT, tmp_path, budget=len(graph.nodes) + 20)
    assert (found.runs, found.checked) == (1, "the whole model")
    assert len(list(tmp_path.iterdir())) == 1


def test_at_least_one_operation_is_compared(tmp_path: Path) -> None:
    found = verified_program(GPT, tmp_path, budget=0)
    assert found.runs == 1
    assert found.checked.startswith("the first 1 of ")


# What does not run


def test_a_file_that_does_not_load(tmp_path: Path) -> None:
    graph, weights = traced(GPT)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x08broken")
    with pytest.raises(SexpgpuError) as caught:
        verify_model(path, graph, weights.__getitem__, lambda part: path)
    assert caught.value.code == "E-VERIFY-002"
