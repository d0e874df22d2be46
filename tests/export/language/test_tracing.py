"""Calls of operations: nodes, constants, limits, and the dimension that is the batch."""

from __future__ import annotations

import time

import pytest

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.language import tracing
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.tensors import Tensor
from support.programs import failure_of, place, program, program_error, report_error, traced

HEAD = "(def record (fields :x (list f32 8)))\n"


def net(body: str, parts: str = "") -> str:
    """A program whose model computes `body` of its input x [batch, 8]."""
    return (
        f"{HEAD}(defmodel net ()\n  (parts {parts})\n  (apply (x)\n    {body}))\n(def model (net))"
    )


def outputs(body: str) -> list[str]:
    """The types of what a model returns, as text."""
    graph, _ = traced(net(body))
    return [str(value.type) for value in graph.outputs.values()]


# The batch dimension


@pytest.mark.parametrize(
    ("body", "types"),
    [
        ("(zeros (shape x))", ["[batch, 8] f32"]),
        ("(zeros (list (dim x 0) 3) :dtype i64)", ["[batch, 3] i64"]),
        ("(reshape x (list (* 2 (dim x 0)) 4))", ["[2*batch, 4] f32"]),
        ("(reshape x (list (* (dim x 0) 2 4)))", ["[8*batch] f32"]),
        ("(reshape x (list (* (dim x 0) 8)))", ["[8*batch] f32"]),
        ("(reshape x (list -1 4))", ["[2*batch, 4] f32"]),
        ("(iota (dim x 0))", ["[batch] i32"]),
        ("(concat x x :axis 0)", ["[2*batch, 8] f32"]),
        ("(zeros (list (* 0 (dim x 0)) 2))", ["[0, 2] f32"]),
        ("(matmul (transpose x) x)", ["[8, 8] f32"]),
        ("(if (= (shape x) (shape (relu x))) x (mean x))", ["[batch, 8] f32"]),
        ("(if (= (dim x 0) (dim (relu x) 0)) x (mean x))", ["[batch, 8] f32"]),
        ("(if (= (dim x 0) (* 2 (dim x 0))) x (mean x))", ["[] f32"]),
        ("(if (!= (dim x 0) (* 1 (dim x 0))) x (mean x))", ["[] f32"]),
        ("(if (= (dim x 0) 1) (mean x) x)", ["[batch, 8] f32"]),
    ],
)
def test_the_batch_is_passed_on_multiplied_and_compared(body: str, types: list[str]) -> None:
    assert outputs(body) == types


@pytest.mark.parametrize(
    ("body", "under"),
    [
        ("(/ (dim x 0) 2)", "(dim x 0)"),
        ("(quotient (dim x 0) 2)", "(dim x 0)"),
        ("(mod (dim x 0) 2)", "(dim x 0)"),
        ("(+ (dim x 0) 1)", "(dim x 0)"),
        ("(- (dim x 0))", "(dim x 0)"),
        ("(* (dim x 0) (dim x 0))", "(dim x 0)"),
        ("(* 0.5 (dim x 0))", "0.5"),
        ("(max (dim x 0) 2)", "(dim x 0)"),
        ("(if (> (dim x 0) 1) x x)", "(dim x 0)"),
        ("(+ x (dim x 0))", "(dim x 0)"),
        ("(/ (sum x) (dim x 0))", "(dim x 0)"),
        ("(sqrt (dim x 0))", "(dim x 0)"),
        ("(sigmoid (dim x 0))", "(dim x 0)"),
        ("(for (i (range (dim x 0))) x)", "(dim x 0)"),
        ("(nth (list x x) (dim x 0))", "(dim x 0)"),
        ("(sum x :axis (list 1 (dim x 0)))", "(list 1 (dim x 0))"),
        ("(mean x :axis (dim x 0))", "(dim x 0)"),
        ("(param (list (dim x 0) 2))", "(list (dim x 0) 2)"),
        ("(* x (param (dim x 0)))", "(dim x 0)"),
        ("(tensor (list (dim x 0)))", "(list (dim x 0))"),
    ],
)
def test_anything_else_done_with_the_batch_says_why_not(body: str, under: str) -> None:
    error = program_error(net(body), "E-SHAPE-002")
    assert place(error)[0] == 5
    assert place(error)[2] == under
    assert "batch" in error.message
    assert error.help is not None
    assert "record" in error.help


def test_a_multiple_of_the_batch_is_not_negative() -> None:
    error = program_error(net("(zeros (list (* -1 (dim x 0))))"), "E-VALUE-001")
    assert error.message == "a dimension is not negative"
    assert error.came == "-1*batch"


def test_a_record_is_a_batch_of_any_size() -> None:
    graph, _ = traced(net("x"))
    assert graph.inputs[0].type.shape == (Batch(), 8)


# Errors: the caret is under the guilty argument, and the program's own calls are shown


@pytest.mark.parametrize(
    ("code", "body", "under"),
    [
        ("E-TYPE-001", '(+ x 1 "a")', '"a"'),
        ("E-TYPE-001", "(* (relu x) nil x)", "nil"),
        ("E-DTYPE-001", "(+ (cast x i32) 1 1.5)", "1.5"),
        ("E-DTYPE-001", "(take x 0.5)", "0.5"),
        ("E-DTYPE-001", "(where (> x 0) 1 true)", "true"),
        ("E-VALUE-001", "(* 1e300 x)", "1e300"),
        ("E-TYPE-001", "(concat x x 'y :axis 1)", "'y"),
        ("E-TYPE-001", "(concat (list x :y) :axis 1)", "(list x :y)"),
        ("E-TYPE-001", "(softmax x :axis 1.0)", "1.0"),
        ("E-TYPE-001", "(reshape x (list 2 :a))", "(list 2 :a)"),
        ("E-TYPE-001", "(< 0 x :a)", ":a"),
        ("E-TYPE-001", "(einsum x x)", "x"),
        ("E-CALL-002", "(softmax x 1)", "1"),
        ("E-CALL-003", "(softmax x :axes 1)", ":axes"),
        ("E-DTYPE-001", "(+ x (cast x i32))", "(+ x (cast x i32))"),
        ("E-DTYPE-002", "(sigmoid (cast x i32))", "(sigmoid (cast x i32))"),
        ("E-SHAPE-001", "(matmul x x)", "(matmul x x)"),
        ("E-SHAPE-003", "(broadcast-to x (list 1000000 1000000 (dim x 0) 8))", None),
        ("E-TENSOR-001", "(if (> x 0) x x)", "(> x 0)"),
    ],
)
def test_the_caret_is_under_the_guilty_argument(code: str, body: str, under: str | None) -> None:
    error = program_error(net(body), code)
    line, _, text = place(error)
    assert (line, text) == (5, under or body)
    assert [frame.name for frame in error.frames] == ["net"]


def test_an_error_inside_a_layer_is_shown_at_the_call_of_the_layer() -> None:
    error = program_error(net("(l (relu x))", "l (linear 9 4)"), "E-SHAPE-001")
    assert place(error) == (5, 5, "(l (relu x))")
    shown = error.render()
    assert "  --> " not in shown.split("\n")[0]
    assert "it went wrong in `linear`, at layers/linear.sx:" in shown
    assert "(matmul x (if transposed (transpose w) w))" in shown
    assert "in linear, called at " in shown
    assert error.as_data()["line"] == 5
    assert str(error.as_data()["inside"]).startswith("layers/linear.sx:")


def test_the_call_stack_goes_through_models_and_functions() -> None:
    text = (
        HEAD + "(defn widen (m x) (m x))\n"
        "(defmodel block () (parts l (linear 9 4)) (apply (x) (widen l x)))\n"
        "(defmodel net () (parts blocks (list (block)))\n"
        "  (apply (x) (fold (fn (x b) (b x)) x blocks)))\n"
        "(def model (net))"
    )
    error = program_error(text, "E-SHAPE-001")
    assert [frame.name for frame in error.frames] == ["linear", "widen", "block", "fn", "net"]
    assert place(error) == (2, 19, "(m x)")
    lines = [frame.span.line for frame in error.frames if frame.span is not None]
    assert lines == [2, 3, 5, 5]


# Nodes and constants


def test_nodes_know_their_operation_source_and_part() -> None:
    graph, _ = traced(net("(l (relu x))", "l (linear 8 4)"))
    relu, matmul, add = graph.nodes
    assert [node.operation.name for node in graph.nodes] == ["relu", "matmul", "+"]
    assert relu.scope == ""
    assert matmul.scope == add.scope == "l"
    assert relu.position is not None
    assert (relu.position.line, relu.position.column) == (5, 8)


def test_equal_constants_are_one_node() -> None:
    graph, _ = traced(net("(+ (* x 2) (/ x 2) (* x -0.0) (* x 0.0))"))
    constants = [node for node in graph.nodes if node.operation.name == "constant"]
    assert len(constants) == 3


def test_numbers_alone_make_no_nodes() -> None:
    compiled = program(net("(* x (sigmoid 0) (+ 1 (* 2 3)))"))
    graph = trace_alone(compiled).graph
    assert len(graph.nodes) == 4
    assert compiled.tracer.made == 4


def test_a_number_of_an_operation_without_tensors_is_a_tensor() -> None:
    graph, _ = traced(net("(+ (mean x) (sum 3.0))"))
    assert [node.operation.name for node in graph.nodes].count("sum") == 1


# Limits


def timed_error(text: str, code: str) -> tuple[float, object]:
    started = time.process_time()
    error = report_error(text, code)
    return time.process_time() - started, error


def test_a_graph_without_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracing.NODE_LIMIT <= 100_000
    monkeypatch.setattr(tracing, "NODE_LIMIT", 5_000)
    loop = "(fold (fn (x i) (+ x (* x 2.0))) x (range 1000000))"
    error = report_error(net(loop), "E-LIMIT-004")
    assert error.message == "the model traces to more than 5,000 nodes"
    assert error.help is not None
    assert "`scan`" in error.help
    assert place(error)[0] == 5


def test_constants_count_as_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "NODE_LIMIT", 5_000)
    error = failure_of("(map (fn (i) (tensor i)) (range 10000))", "E-LIMIT-004")
    assert place(error)[2] == "(tensor i)"


def test_each_trace_counts_its_own_nodes() -> None:
    compiled = program(net("(fold (fn (x i) (relu x)) x (range 100))"))
    for _ in range(3):
        trace_alone(compiled)
        assert compiled.tracer.made == 100


def test_a_model_that_applies_itself_is_refused() -> None:
    seconds, error = timed_error(net("(model (relu x))"), "E-LIMIT-001")
    assert "calls are nested more than 1,000 deep" in str(error)
    assert seconds < 5


def test_a_model_that_is_its_own_part_is_refused() -> None:
    text = HEAD + "(defmodel net () (parts inner (net)) (apply (x) (inner x)))\n(def model (net))"
    assert timed_error(text, "E-LIMIT-001")[0] < 5


def test_models_may_nest_deep() -> None:
    text = (
        HEAD + "(defmodel leaf () (parts) (apply (x) (relu x)))\n"
        "(defmodel shell (inner) (parts inner inner) (apply (x) (inner x)))\n"
        "(def model (fold (fn (m i) (shell m)) (leaf) (range 400)))"
    )
    graph, _ = traced(text)
    assert [node.operation.name for node in graph.nodes] == ["relu"]


@pytest.mark.parametrize(
    "body",
    [
        "(zeros (list 1000000 1000000))",
        "(broadcast-to (mean x) (list 1000000 1000000))",
        "(tile x (list 1000000 1000000))",
        "(one-hot (iota 1000000) 1000000)",
        "(pad x :after (list 0 1000000000000))",
        "(unsqueeze x (list 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27"
        " 28 29 30 31 32 33))",
    ],
)
def test_a_tensor_too_large_is_refused_before_memory_is_taken(body: str) -> None:
    assert timed_error(net(body), "E-SHAPE-003")[0] < 2


# Modes


def test_dropout_is_no_part_of_the_model_alone_and_part_of_training() -> None:
    text = net("(dropout (d (relu x)) 0.5)", "d (dropout 0.1)") + "\n(defn loss (p r) (mean p))"
    compiled = program(text)
    assert [n.operation.name for n in trace_alone(compiled).graph.nodes] == ["relu"]
    with compiled.tracer.mode(training=True):
        before = compiled.tracer.made
        compiled.evaluator.apply(compiled.model, [an_input()])
        assert compiled.tracer.made - before == 3
    assert not compiled.tracer.training


def an_input() -> Tensor:
    return Tensor(Value(TensorType(DType.F32, (Batch(), 8)), name="x"))


def test_a_wrong_rate_of_dropout_is_an_error_outside_training_too() -> None:
    assert place(program_error(net("(dropout x 2)"), "E-VALUE-001"))[2] == "(dropout x 2)"


def test_random_numbers_belong_to_training() -> None:
    error = program_error(net("(+ x (random-normal (shape x)))"), "E-INFER-002")
    assert place(error)[2] == "(random-normal (shape x))"
    assert error.help == "draw them in `prepare`, or in `loss`"


def test_random_numbers_inside_scan_are_drawn_at_every_step() -> None:
    body = "(first (scan (fn (c v) (list (+ c (random-normal (list 8))) nil)) (zeros 8) (zeros 5)))"
    compiled = program(net(body) + "\n(defn loss (p r) (mean p))")
    with compiled.tracer.mode(training=True):
        tensor = compiled.evaluator.apply(compiled.model, [an_input()])
    scan = tensor.value.node
    inside = [node.operation.name for node in scan.attributes["body"].nodes]
    assert "random-normal" in inside
