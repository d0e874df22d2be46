"""Names in an ONNX graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.onnx.names import Names


def test_a_name_is_given_once() -> None:
    names = Names()
    assert [names.fresh("x") for _ in range(3)] == ["x", "x_1", "x_2"]
    assert names.fresh("y") == "y"


def test_a_number_that_is_taken_already() -> None:
    names = Names()
    assert names.fresh("x_1") == "x_1"
    assert [names.fresh("x") for _ in range(3)] == ["x", "x_2", "x_3"]
    assert names.fresh("x_1") == "x_1_1"


@given(st.lists(st.sampled_from(["a", "a_1", "a_1_1", "b", "b_2", ""]), max_size=30))
def test_whatever_is_wanted(wanted: list[str]) -> None:
    names = Names()
    found = [names.fresh(name) for name in wanted]
    assert len(set(found)) == len(found)
    assert all(name.startswith(want) for name, want in zip(found, wanted, strict=True))


def test_many_alike_take_no_time() -> None:
    names = Names()
    assert [names.fresh("x") for _ in range(20_000)][-1] == "x_19999"
