"""The graph that `scan` makes; what it computes is in suite/tensors/scan.sx."""

from __future__ import annotations

import time

import numpy as np

from support.harness import check_graph
from support.programs import place, program_error, report, traced

HEAD = "(def record (fields :x (list f32 6 4)))\n"


def test_the_body_is_traced_once_and_reads_parameters_as_inputs() -> None:
    graph, weights = traced(
        HEAD + "(defmodel net () (parts cell (linear 4 4)) (apply (x)\n"
        "  (scan (fn (h v) (let (n (tanh (+ h (cell v)))) (list n n)))\n"
        "        (zeros (list (dim x 0) 4)) x :axis 1)))\n(def model (net))"
    )
    (scan,) = (node for node in graph.nodes if node.operation.name == "scan")
    body = scan.attributes["body"]
    assert [node.operation.name for node in body.nodes] == ["matmul", "+", "+", "tanh"]
    assert [value.name for value in body.inputs] == ["carry.0", "x.0", "outer.0", "outer.1"]
    assert [value.name for value in scan.inputs[2:]] == ["cell.w", "cell.b"]
    assert body.nodes[0].scope == "cell"
    x = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    last, every = check_graph(graph, {"inputs": x}, weights)
    h = np.zeros((2, 4), np.float32)
    for step in range(6):
        h = np.tanh(h + x[:, step] @ weights["cell.w"] + weights["cell.b"])
        np.testing.assert_allclose(every[:, step], h, 1e-5, 1e-6)
    np.testing.assert_allclose(last, h, 1e-5, 1e-6)


def test_what_does_not_depend_on_the_step_is_computed_once_outside() -> None:
    graph, _ = traced(
        HEAD
        + "(defn model (x) (let (w (param 4))\n"
        "  (second-of (scan (fn (c v) (list c (* v (exp (mean x :axis 1))))) nil x :axis 1))))\n"
        "(defn second-of (pair) (nth pair 1))".replace("(let (w (param 4))", "(do")
    )
    outside = [node.operation.name for node in graph.nodes]
    (scan,) = (node for node in graph.nodes if node.operation.name == "scan")
    assert outside == ["mean", "exp", "scan"]
    assert [node.operation.name for node in scan.attributes["body"].nodes] == ["*"]


def test_the_batch_is_no_axis_to_scan_along() -> None:
    error = program_error(
        HEAD + "(defn model (x)\n  (scan (fn (c v) (list c v)) nil x))", "E-SHAPE-002"
    )
    assert place(error)[:2] == (3, 3)


def test_errors_inside_the_function_are_shown_there() -> None:
    error = program_error(
        HEAD
        + "(defn model (x)\n  (scan (fn (c v)\n          (list c (+ v (zeros 3)))) nil x :axis 1))",
        "E-SHAPE-001",
    )
    assert place(error) == (4, 19, "(+ v (zeros 3))")
    assert [frame.name for frame in error.frames] == ["fn", "model"]


def test_a_tensor_of_a_body_does_not_leave_it() -> None:
    """A closure that keeps a slice would read it where there is none."""
    error = program_error(
        HEAD + "(defn model (x)\n"
        "  (let ((c f) (scan (fn (c v) (list c (fn () v))) nil x :axis 1)) (f)))",
        "E-TYPE-001",
    )
    assert "a tensor, or a list of tensors" in (error.expected or "")


NESTED = """(def record (fields :x (list f32 8) :a (list f32 8) :b (list f32 8)))
(defn nested (n x a b)
  (if (= n 0)
    (+ x a b)
    (first (scan (fn (c v) (list (+ v a b (nested (- n 1) c (relu a) (+ b v))) nil))
                 x (zeros 3)))))
(defn model (x a b) (nested {} x a b))
"""


def test_scans_inside_scans_are_followed_in_time() -> None:
    started = time.process_time()
    verdict = report(NESTED.format(12)).independence
    assert verdict is not None
    assert verdict.independent
    assert time.process_time() - started < 5


def test_scans_nested_without_bound_are_refused() -> None:
    error = program_error(NESTED.format(17), "E-LIMIT-004")
    assert error.message == "`scan` is nested more than 16 deep"
    assert place(error)[:2] == (5, 12)


def test_scans_in_a_row_take_time_in_proportion() -> None:
    text = (
        HEAD + "(defn model (x)\n"
        "  (fold (fn (x i) (first (scan (fn (c v) (list (+ c (* x v)) nil)) x (ones 3))))\n"
        "        x (range 500)))"
    )
    started = time.process_time()
    graph, _ = traced(text)
    assert [node.operation.name for node in graph.nodes] == ["full", "scan"] * 500
    assert time.process_time() - started < 5
