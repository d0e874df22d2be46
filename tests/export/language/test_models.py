"""Models beyond what suite/tensors/models.sx says: walking their parts, and instances' code."""

from __future__ import annotations

import time

import numpy as np

from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.language.models import Model, walk_parts
from sexpgpu.export.language.tensors import Parameter
from support.programs import program, traced

HEAD = "(def record (fields :x (list f32 2)))\n"


def test_the_walk_meets_each_parameter_and_model_once_in_order() -> None:
    compiled = program(
        HEAD + "(def l (linear 2 2))\n"
        "(defmodel net () (parts a l b (list l (linear 2 2))) (apply (x) x))\n(def model (net))"
    )
    walked = [(path, type(item)) for path, item in walk_parts(compiled.model)]
    assert walked == [
        ("", Model),
        ("a", Model),
        ("a.w", Parameter),
        ("a.b", Parameter),
        ("b.1", Model),
        ("b.1.w", Parameter),
        ("b.1.b", Parameter),
    ]


def test_lists_that_share_their_parts_are_walked_once() -> None:
    started = time.process_time()
    compiled = program(
        HEAD + "(defmodel net ()\n"
        "  (parts w (fold (fn (t i) (list t t)) (param 2) (range 100)))\n"
        "  (apply (x) x))\n(def model (net))"
    )
    (path,) = compiled.parameters()
    assert path == ".".join(["w"] + ["0"] * 100)
    assert time.process_time() - started < 5


def test_lists_may_nest_deep() -> None:
    compiled = program(
        HEAD + "(defmodel net ()\n"
        "  (parts w (fold (fn (t i) (list t)) (param 2) (range 1000)))\n"
        "  (apply (x) x))\n(def model (net))"
    )
    assert len(compiled.parameters()) == 1


def test_instances_of_one_defmodel_have_their_own_parameters_and_constants() -> None:
    graph, weights = traced(
        HEAD + "(defmodel net (by) (parts w (param 2 :init (constant by)))\n"
        "  (apply (x) (* (+ x by) w)))\n"
        "(defmodel both () (parts a (net 2.0) b (net 3.0)) (apply (x) (list (a x) (b x))))\n"
        "(def model (both))"
    )
    x = np.ones((1, 2), np.float32)
    a, b = evaluate(graph, {"inputs": x}, weights).values()
    np.testing.assert_array_equal(a, [[6, 6]])
    np.testing.assert_array_equal(b, [[12, 12]])


def test_a_part_may_be_a_function_that_closes_over_parameters() -> None:
    graph, weights = traced(
        HEAD + "(defmodel net () (parts w (param 2 :init (constant 2))\n"
        "                        f (fn (x) (* x w)))\n"
        "  (apply (x) (f (f x))))\n(def model (net))"
    )
    found = evaluate(graph, {"inputs": np.ones((1, 2), np.float32)}, weights)
    np.testing.assert_array_equal(found["output"], [[4, 4]])


def test_a_model_is_taken_apart_with_get() -> None:
    graph, weights = traced(
        HEAD + "(def l (linear 2 3))\n(defn model (x) (matmul x (* 2 (get l :w))))"
    )
    assert list(graph.weights) == ["l.w"]
    assert weights["l.w"].shape == (2, 3)
