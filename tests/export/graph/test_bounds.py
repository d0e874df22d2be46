"""Which whole numbers an input may hold."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.bounds import UNLIMITED, index_limits
from sexpgpu.export.passes.at import gather_at
from support.programs import GPT, traced


def bounds(expression: str, fields: str = ":n (list i32 6)", names: str = "n") -> dict[str, int]:
    graph, _ = traced(f"""
(def record (fields {fields}))
(defmodel net () (parts table (param (list 40 5)) small (param (list 7 5)))
  (apply ({names}) {expression}))
(def model (net))""")
    found = index_limits(graph, certain=False)
    return {name: int(limits.min()) for name, limits in found.items()}


def limits_of(expression: str, *, certain: bool = True) -> list[int]:
    """Those of the elements of `n` [6]; 0 for none."""
    graph, _ = traced(f"""
(def record (fields :n (list i32 6)))
(defmodel net () (parts table (param (list 40 5)) small (param (list 7 5)))
  (apply (n) {expression}))
(def model (net))""")
    found = index_limits(graph, certain=certain).get("inputs", np.full(6, UNLIMITED))
    return [int(limit) if limit < UNLIMITED else 0 for limit in found.ravel()]


@pytest.mark.parametrize(
    ("expression", "length"),
    [
        ("(take table n)", 40),
        ("(take table n :axis 1)", 5),
        ("(take table (cast n i64) :axis -1)", 5),
        ("(list (take table n) (take small n))", 7),
        ("(take small (reshape (transpose n) (list -1 2)))", 7),
        ("(take small (concat (list n n) :axis 1))", 7),
        ("(take small (stack (list n n)))", 7),
        ("(take small (where (> n 0) n (full (list 1) 0 :dtype i32)))", 7),
        ("(take small (first (split n 2 :axis 1)))", 7),
        ("(take small (flip (roll (tile n (list 1 2)) 1)))", 7),
        ("(gather-nd small (reshape n (list (dim n 0) 3 2)))", 5),
        ("(gather-nd small (unsqueeze n (list 2)))", 7),
        ("(take small (take n 1 :axis 1))", 7),
        ("(take small (take-along n (argsort n)))", 7),
        ("(take small (gather-nd n (full (list (dim n 0) 1) 2 :dtype i32) :batch-dims 1))", 7),
        ("(take small (sort n))", 7),
        ("(take small (first (top-k n 2)))", 7),
        ("(take small (max n :axis 1))", 7),
        ("(take small (minimum n (tensor 3)))", 7),
        (
            "(take small (scatter-set n (zeros (list (dim n 0) 1 1) :dtype i32)"
            " (zeros (list (dim n 0) 1) :dtype i32) :batch-dims 1))",
            7,
        ),
        ("(scan (fn (h i) (list (take small i) nil)) (zeros (list (dim n 0) 5)) n :axis 1)", 7),
        (
            "(scan (fn (before i) (list i (take small before)))"
            " (zeros (list (dim n 0)) :dtype i32) n :axis 1)",
            7,
        ),
        ("(take small (nth (scan (fn (none i) (list none i)) 0 n :axis 1) 1))", 7),
        ("(scatter-add small (unsqueeze n (list 2)) (zeros (list (dim n 0) 6 5)))", 7),
    ],
)
def test_the_shortest_axis_that_it_indexes(expression: str, length: int) -> None:
    assert bounds(expression) == {"inputs": length}


def test_an_index_along_an_axis_of_the_input() -> None:
    fields = ":x (list f32 6 3) :n (list i32 4 3)"
    assert bounds("(take-along x n :axis 1)", fields, "x n") == {"inputs.1": 6}


@pytest.mark.parametrize(
    "expression", ["(* n 2)", "(take table (+ n 1))", "(take table (mod n 3))"]
)
def test_what_is_computed_with_is_not_followed(expression: str) -> None:
    assert bounds(expression) == {}


def test_the_condition_of_where_is_no_index() -> None:
    fields = ":n (list i32 6) :m (list i32 6)"
    found = bounds("(take table (where (cast n bool) m m))", fields, "n m")
    assert found == {"inputs.1": 40}


def test_the_batch_as_an_axis_says_nothing() -> None:
    fields = ":x (list f32 6) :n (list i32 1)"
    assert bounds("(take x (reshape n (list -1)) :axis 0)", fields, "x n") == {}


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize(
    ("expression", "limits"),
    [
        ("(take small (slice n :axis 1 :from 1 :to 3))", [0, 7, 7, 0, 0, 0]),
        ("(take small (slice n :axis 1 :from 4 :to 0 :step -2))", [0, 0, 7, 0, 7, 0]),
        ("(list (take small (take n 0 :axis 1)) (take table (take n 5 :axis 1)))",
         [7, 0, 0, 0, 0, 40]),
        ("(map (fn (t i) (take t i)) (list small table) (split n (list 2 4) :axis 1))",
         [7, 7, 40, 40, 40, 40]),
        ("(list (take table n) (take small (shift n 2)))", [7, 7, 7, 7, 40, 40]),
        ("(take small (slice (roll (flip n) 1) :axis 1 :to 2))", [7, 0, 0, 0, 0, 7]),
        ("(take small (slice (transpose (reshape n (list -1 2 3))) :axis 1 :to 1))",
         [7, 0, 0, 7, 0, 0]),
        ("(take small (slice (pad n :before (list 0 2) :value 1) :axis 1 :to 3))",
         [7, 0, 0, 0, 0, 0]),
        ("(take small (slice (concat n n :axis 1) :axis 1 :from 5 :to 7))", [7, 0, 0, 0, 0, 7]),
        ("(gather-nd small (reshape n (list -1 3 2)))", [7, 5, 7, 5, 7, 5]),
        ("(scan (fn (h i) (list (take small i) nil)) (zeros (list (dim n 0) 5))"
         " (slice n :axis 1 :to 4) :axis 1)", [7, 7, 7, 7, 0, 0]),
    ],
)  # fmt: skip
def test_each_element_has_its_own(expression: str, limits: list[int], certain: bool) -> None:
    assert limits_of(expression, certain=certain) == limits


@pytest.mark.parametrize(
    "expression",
    [
        "(take small (where (< n 0) 0 n))",
        "(take small (minimum n 6))",
        "(take small (min n :axis 1))",
        "(take small (slice (sort n) :axis 1 :to 2))",
        "(take small (take-along n (argmin n :keep true) :axis 1))",
        "(take small (first (scan (fn (before i) (list (minimum before i) nil))"
        " (zeros (list (dim n 0)) :dtype i32) n :axis 1)))",
    ],
)
def test_what_is_chosen_is_not_certain(expression: str) -> None:
    """A call may hold any number there, and must not be refused; drawn ones are in range."""
    assert limits_of(expression) == [0] * 6
    assert max(limits_of(expression, certain=False)) == 7


def test_an_index_past_the_end_is_left_to_who_runs_it() -> None:
    assert limits_of("(take small (take n 9 :axis 1))") == [0] * 6


def test_at_is_a_position() -> None:
    found = index_limits(gather_at(traced(GPT)[0]), certain=False)
    assert {name: {*limits.flat} for name, limits in found.items()} == {"inputs": {40}, "at": {12}}
