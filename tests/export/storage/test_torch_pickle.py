"""The machine that reads a checkpoint's pickle: what pickle writes, and what would take it down."""

from __future__ import annotations

import collections
import pickle
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.storage.torch_objects import Foreign, PickleFault
from sexpgpu.export.storage.torch_pickle import read_pickle
from support.torch_files import call, items, named, number, program, text

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**100), 2**100)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
)


@st.composite
def values(draw: Any, leaves: Any) -> Any:
    """Two of one value, so that the second comes out of the memo."""
    value = draw(
        st.recursive(
            leaves,
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.lists(inner, max_size=4).map(tuple)
                | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
            ),
            max_leaves=20,
        )
    )
    return [value, {"again": value}]


def read(data: bytes) -> object:
    found = read_pickle(data, 0, len(data))
    assert found.end == len(data)
    return found.content


def fault(data: bytes) -> str:
    with pytest.raises(PickleFault) as caught:
        read(data)
    return str(caught.value)


def plain(value: Any) -> Any:
    """With keys as they are kept."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


@given(values(LEAVES))
def test_values_are_those_that_pickle_wrote(value: Any) -> None:
    assert read(pickle.dumps(value, 2)) == plain(value)


@given(values(LEAVES | st.binary(max_size=300)), st.sampled_from([3, 4]))
def test_later_protocols(value: Any, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol)) == plain(value)


def test_other_containers() -> None:
    ordered = collections.OrderedDict(a=1, b=[2])
    assert read(pickle.dumps(ordered, 2)) == {"a": 1, "b": [2]}
    assert read(pickle.dumps(collections.defaultdict(list, a=1), 2)) == {"a": 1}
    assert isinstance(read(pickle.dumps({1, 2}, 4)), Foreign)
    assert isinstance(read(pickle.dumps(frozenset([1]), 4)), Foreign)
    assert read(program(call("torch.Size", b"](K\1K\2e"))) == (1, 2)


def test_keys_that_are_no_names_are_left_out() -> None:
    assert read(pickle.dumps({(1, 2): 3, None: 4, True: 5, b"x": 6, "kept": 7}, 2)) == {"kept": 7}


@pytest.mark.parametrize(
    "body",
    [
        named("builtins.eval") + items(text("1/0")) + b"R",
        named("builtins.eval") + items(text("1/0")) + b"\x81",
        named("builtins.eval") + items(text("1/0")) + b"}\x92",
        text("builtins") + text("eval") + b"\x93" + items(text("1/0")) + b"R",
        call("torch._tensor._rebuild_from_type_v2", named("builtins.eval"), b"N", items(), b"N"),
        call("torch.Size", number(3)),
    ],
)
def test_what_would_be_called_is_a_name(body: bytes) -> None:
    found = read(program(body))
    assert isinstance(found, Foreign)
    assert found.name in ("builtins.eval", "torch.Size")


def test_the_state_of_what_is_not_made() -> None:
    found = read(program(named("my.Thing") + b")R}" + text("a") + b"K\1sb"))
    assert found == Foreign("my.Thing", {"a": 1})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (b"\x80", "truncated"),
        (program(b""), "empty stack"),
        (program(b"(K\1"), None),
        (program(b"K\1a"), "empty stack"),
        (program(b"(a"), "empty stack"),
        (program(b"t"), "empty stack"),
        (program(b"h\0"), "not kept"),
        (program(b"j" + struct.pack("<I", 2**32 - 1)), "not kept"),
        (program(b"X" + struct.pack("<I", 2**32 - 1)), "truncated"),
        (program(b"\x8e" + struct.pack("<Q", 2**63)), "truncated"),
        (program(b"\x8a\xff" + bytes(255)), "255 bytes"),
        (program(b"\x96" + struct.pack("<Q", 2**40)), "0x96"),
        (program(b"ios\nsystem\n"), "0x69"),
        (program(b"cos"), "no end"),
        (program(b"K\1K\2\x93"), "no string"),
        (program(b"K\1Q"), "another way"),
    ],
)
def test_damage(data: bytes, reason: str | None) -> None:
    if reason is None:
        assert read(data) == 1
    else:
        assert reason in fault(data)


def test_a_memo_with_a_large_number_takes_no_memory() -> None:
    tracemalloc.start()
    read(program(b"]r" + struct.pack("<I", 2**32 - 1)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 16


def test_nested_tuples_as_a_key() -> None:
    """Python's own machine ends the process here, by the hash of what is nested so deep."""
    body = b"}K\1" + b"\x85" * 200_000 + b"K\2s"
    assert read(program(body)) == {}


def test_a_long_list_is_not_copied_again_and_again() -> None:
    pairs = b"](" + items(text("k"), b"N") * 2000 + b"eq\0"
    body = pairs + (named("collections.OrderedDict") + b"h\0\x85R0") * 2000
    assert "more than 4,000,000 steps" in fault(program(body))
    long = b"](" + b"K\1" * 1000 + b"e"
    assert isinstance(read(program(call("torch.Size", long))), Foreign)
