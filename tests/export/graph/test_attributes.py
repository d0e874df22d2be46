"""Attributes in model.json: every value comes back with its bits, and nothing else is taken."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.attributes import (
    CONSTANT_LIMIT,
    Malformed,
    read_attribute,
    read_dimension,
    write_attribute,
    write_dimension,
)
from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, Batch, DType
from sexpgpu.export.operations.signature import REQUIRED, Attribute, Kind
from support.arrays import DTYPES, SEEDS, assert_same, random_array, shapes


def attribute(kind: Kind, default: Any = REQUIRED, choices: tuple[str, ...] = ()) -> Attribute:
    return Attribute("a", kind, default, choices=choices)


def no_body(data: Any) -> Any:
    raise AssertionError("there is no body")


def round_trip(kind: Kind, value: Any, **more: Any) -> Any:
    """The value after it was written as JSON text and read."""
    described = attribute(kind, **more)
    text = msgspec.json.encode(write_attribute(described, value, no_body))
    return read_attribute(described, msgspec.json.decode(text), no_body)


DIMENSIONS = st.integers(0, 2**40) | st.builds(Batch, st.integers(1, 10**6))
INTEGERS = st.integers(-(2**63), 2**63 - 1)

#: A value of every kind; arrays and floats have tests of their own.
VALUES: list[tuple[Kind, dict[str, Any], st.SearchStrategy[Any]]] = [
    (Kind.INTEGER, {}, INTEGERS | st.builds(Batch, st.integers(1, 99))),
    (Kind.BOOLEAN, {}, st.booleans()),
    (Kind.WORD, {"choices": ("same", "valid")}, st.sampled_from(["same", "valid"])),
    (Kind.STRING, {}, st.text()),
    (Kind.DTYPE, {}, DTYPES),
    (Kind.INTEGERS, {}, st.lists(INTEGERS).map(tuple)),
    (Kind.SHAPE, {}, st.lists(DIMENSIONS).map(tuple)),
    (Kind.NAMES, {}, st.lists(st.text()).map(tuple)),
    (
        Kind.PADDING,
        {"choices": ("same",)},
        st.just("same") | INTEGERS | st.lists(INTEGERS | st.tuples(INTEGERS, INTEGERS)).map(tuple),
    ),
]


@pytest.mark.parametrize(("kind", "more", "values"), VALUES, ids=[v[0].name for v in VALUES])
@given(data=st.data())
def test_every_kind_comes_back(
    kind: Kind, more: dict[str, Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    found = round_trip(kind, value, **more)
    assert (type(found), found) == (type(value), value)


@given(st.floats() | st.integers(-(2**53), 2**53))
def test_a_number_keeps_its_bits(number: float) -> None:
    found = round_trip(Kind.NUMBER, number)
    assert np.float64(found).tobytes() == np.float64(number).tobytes()


@given(DTYPES, shapes(), SEEDS)
def test_a_constant_keeps_its_bits(dtype: DType, shape: tuple[int, ...], seed: int) -> None:
    array = random_array(seed, dtype, shape, special=True)
    assert_same(round_trip(Kind.ARRAY, array), array)


WORDS = {DType.F64: np.uint64, DType.F32: np.uint32, DType.BF16: np.uint16}


@given(st.sampled_from(list(WORDS)), st.data())
def test_any_bits_of_a_float_come_back(dtype: DType, data: st.DataObject) -> None:
    word = WORDS[dtype]
    bits = data.draw(st.lists(st.integers(0, int(np.iinfo(word).max)), min_size=1, max_size=8))
    array: Array = np.array(bits, word).view(dtype.numpy)
    assert_same(round_trip(Kind.ARRAY, array), array)


def test_the_batch_is_a_word() -> None:
    assert write_dimension(Batch()) == "batch"
    assert write_dimension(Batch(16)) == "16*batch"
    assert write_dimension(7) == 7
    assert read_dimension("16*batch") == Batch(16)
    assert read_dimension("1*batch") == Batch()


def test_infinities_and_nan_are_words() -> None:
    described = attribute(Kind.ARRAY)
    array = np.array([np.inf, -np.inf, np.nan, 0.5], np.float32)
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert write_attribute(described, array, no_body)["data"] == ["inf", "-inf", "nan", 0.5]
    assert write_attribute(described, other, no_body)["data"] == ["nan:7fc00001"]
    assert write_attribute(attribute(Kind.NUMBER), float("-inf"), no_body) == "-inf"
    json.dumps(write_attribute(described, array, no_body), allow_nan=False)


def test_nil_where_it_is_the_default() -> None:
    assert round_trip(Kind.INTEGER, None, default=None) is None
    with pytest.raises(Malformed):
        read_attribute(attribute(Kind.INTEGER, 3), None, no_body)


def test_a_body_is_read_and_written_by_others() -> None:
    graph, described = Graph(), attribute(Kind.GRAPH)
    assert write_attribute(described, graph, lambda body: {"is": body is graph}) == {"is": True}
    assert read_attribute(described, {"x": 1}, lambda data: graph) is graph


CONSTANT = {"dtype": "f32", "shape": [2], "data": [1.0, 2.0]}

#: What is of no kind that it should be.
MALFORMED: list[tuple[Kind, Any]] = [
    (Kind.INTEGER, 1.5),
    (Kind.INTEGER, True),
    (Kind.INTEGER, 2**63),
    (Kind.INTEGER, "0*batch"),
    (Kind.INTEGER, "batch*2"),
    (Kind.INTEGER, "-1*batch"),
    (Kind.INTEGER, [1]),
    (Kind.NUMBER, "1.5"),
    (Kind.NUMBER, True),
    (Kind.NUMBER, 10**400),
    (Kind.NUMBER, "nan:0000000000000000"),
    (Kind.NUMBER, "nan:7ff8"),
    (Kind.NUMBER, [1.0]),
    (Kind.BOOLEAN, 1),
    (Kind.WORD, "other"),
    (Kind.WORD, 3),
    (Kind.STRING, 3),
    (Kind.DTYPE, "f16"),
    (Kind.DTYPE, ["f32"]),
    (Kind.INTEGERS, 3),
    (Kind.INTEGERS, [1.5]),
    (Kind.INTEGERS, ["batch"]),
    (Kind.SHAPE, "batch"),
    (Kind.SHAPE, [None]),
    (Kind.SHAPE, [True]),
    (Kind.NAMES, ["a", 1]),
    (Kind.PADDING, "other"),
    (Kind.PADDING, [[1, 2, 3]]),
    (Kind.PADDING, [[1, 1.5]]),
    (Kind.PADDING, {}),
    (Kind.ARRAY, [1.0]),
    (Kind.ARRAY, {**CONSTANT, "more": 1}),
    (Kind.ARRAY, {"dtype": "f32", "shape": [2]}),
    (Kind.ARRAY, {**CONSTANT, "dtype": "f16"}),
    (Kind.ARRAY, {**CONSTANT, "shape": 2}),
    (Kind.ARRAY, {**CONSTANT, "shape": [3]}),
    (Kind.ARRAY, {**CONSTANT, "shape": [-2]}),
    (Kind.ARRAY, {**CONSTANT, "shape": [-1, -2]}),
    (Kind.ARRAY, {**CONSTANT, "shape": [2] + [1] * 16}),
    (Kind.ARRAY, {**CONSTANT, "shape": [2**40, 2**40]}),
    (Kind.ARRAY, {**CONSTANT, "shape": [0, 2**40, 2**40], "data": []}),
    (Kind.ARRAY, {**CONSTANT, "data": "ab"}),
    (Kind.ARRAY, {**CONSTANT, "data": [1.0, None]}),
    (Kind.ARRAY, {**CONSTANT, "data": [1.0, True]}),
    (Kind.ARRAY, {**CONSTANT, "data": [1.0, "one"]}),
    (Kind.ARRAY, {**CONSTANT, "data": [1.0, 1e39]}),
    (Kind.ARRAY, {**CONSTANT, "data": [1.0, 10**400]}),
    (Kind.ARRAY, {**CONSTANT, "dtype": "i32", "data": [1, 2**31]}),
    (Kind.ARRAY, {**CONSTANT, "dtype": "i32", "data": [1, 1.0]}),
    (Kind.ARRAY, {**CONSTANT, "dtype": "i64", "data": [1, 2**63]}),
    (Kind.ARRAY, {**CONSTANT, "dtype": "bool", "data": [True, 1]}),
]


@pytest.mark.parametrize(("kind", "data"), MALFORMED, ids=[str(i) for i in range(len(MALFORMED))])
def test_what_is_not_of_its_kind(kind: Kind, data: Any) -> None:
    with pytest.raises(Malformed) as caught:
        read_attribute(attribute(kind, choices=("same",)), data, no_body)
    assert str(caught.value), "it says what was expected"


def test_a_constant_that_should_be_a_weight() -> None:
    size = CONSTANT_LIMIT + 1
    with pytest.raises(Malformed) as caught:
        read_attribute(
            attribute(Kind.ARRAY),
            {"dtype": "bool", "shape": [size], "data": [True] * size},
            no_body,
        )
    assert str(CONSTANT_LIMIT) in str(caught.value)


def test_a_bf16_number_is_rounded_as_it_was() -> None:
    array = np.array([1.00390625, 3.0e38], ml_dtypes.bfloat16)
    assert_same(round_trip(Kind.ARRAY, array), array)
