"""The safetensors header: every way in which it may not describe its bytes."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import (
    DTYPES,
    dtype_name,
    plan_header,
    read_header,
    read_header_from,
)


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def parse(data: bytes) -> object:
    return read_header_from(io.BytesIO(data), len(data), "w.safetensors")


def refusal(data: bytes) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        parse(data)
    assert caught.value.code == "E-TENSORS-001"
    return caught.value


def record(begin: int, end: int, dtype: object = "F32", shape: object = (1,)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_names_shapes_and_absolute_offsets(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(3, np.bool_)}
    safetensors.numpy.save_file(arrays, path, {"made": "here"})
    header = read_header(path)
    assert header.metadata == {"made": "here"}
    assert set(header.tensors) == {"a", "b"}
    data = path.read_bytes()
    for name, array in arrays.items():
        entry = header.tensors[name]
        assert (DTYPES[entry.dtype], entry.shape) == (array.dtype, array.shape)
        assert data[entry.offset : entry.offset + entry.nbytes] == array.tobytes()


@pytest.mark.parametrize(
    ("header", "data", "place", "words"),
    [
        ({"a": record(0, 4)}, b"123", '"a"', "truncated"),
        ({"a": record(0, 4)}, b"12345", "", "belong to no tensor"),
        ({"a": record(0, 4), "b": record(2, 6)}, b"123456", '"b"', "overlaps"),
        ({"a": record(0, 4), "b": record(0, 4)}, b"1234", '"b"', "overlaps"),
        ({"a": record(0, 4), "b": record(5, 9)}, b"123456789", '"b"', "belong to none"),
        ({"a": record(1, 5)}, b"12345", '"a"', "belong to none"),
        ({"a": record(0, 8)}, b"12345678", '"a"', "span 8 bytes"),
        ({"a": record(4, 0)}, b"1234", '"a"', "span -4 bytes"),
        ({"a": record(-4, 0)}, b"", '"a" $.data_offsets[0]', "format"),
        ({"a": record(0, 4, "F31")}, b"1234", '"a"', '"F31" is unknown'),
        ({"a": record(0, 4, 7)}, b"1234", '"a" $.dtype', "format"),
        ({"a": record(0, 4, shape=[-1])}, b"1234", '"a" $.shape[0]', "format"),
        ({"a": record(0, 4, shape=[1.0])}, b"1234", '"a" $.shape[0]', "format"),
        ({"a": record(0, 4, shape=[True])}, b"1234", '"a" $.shape[0]', "format"),
        ({"a": record(0, 4, shape=[2**63])}, b"1234", '"a" $.shape[0]', "format"),
        ({"a": record(0, 4, shape=[1] * 65)}, b"1234", '"a" $.shape', "format"),
        ({"a": record(0, 0, shape=[0, 2**62])}, b"", '"a"', "too large"),
        ({"a": {"dtype": "F32", "shape": [1]}}, b"1234", '"a" $', "missing"),
        ({"a": {**record(0, 4), "more": 1}}, b"1234", '"a" $', "unknown field"),
        ({"a": [1]}, b"", '"a" $', "format"),
        ({"__metadata__": {"a": 1}}, b"", "$[...]", "format"),
        (
            b'{"a":%b,"a":%b}' % ((json.dumps(record(0, 0, shape=[0])).encode(),) * 2),
            b"",
            '"a"',
            "twice",
        ),
        (b"[1]", b"", "", "not a JSON object"),
        (b' {"a":1}', b"", "", "not a JSON object"),
        (b'{"a":', b"", "", "malformed"),
        (b'{"\xff": 1}', b"", "", "malformed"),
        (b'{"a":' * 100_000, b"", "", "nested too deep"),
        (b'{"a":' + b"[" * 100_000, b"", "", "nested too deep"),
    ],
)
def test_a_damaged_header_is_named(header: object, data: bytes, place: str, words: str) -> None:
    error = refusal(file_of(header, data))
    assert error.place == f"w.safetensors {place}".rstrip()
    assert words in error.message


@pytest.mark.parametrize("data", [b"", b"1234567", struct.pack("<Q", 2**64 - 1) + b"{}"])
def test_a_header_that_is_not_there_is_named(data: bytes) -> None:
    refusal(data)


def test_a_header_is_never_read_past_its_limit() -> None:
    assert "more than" in refusal(struct.pack("<Q", 100_000_001) + b"{}").message
    assert "the file has 2" in refusal(struct.pack("<Q", 99_999_999) + b"{}").message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SexpgpuError, match="E-FILE-001"):
        read_header(tmp_path / "none.safetensors")


def test_a_plan_is_aligned_and_read_back() -> None:
    tensors = [("flag", "BOOL", [3]), ("half", "BF16", [3]), ("whole", "F32", [2, 2])]
    head, plan = plan_header(tensors, {"k": "v"})
    assert plan.data_offset % 8 == 0
    assert [entry.name for entry in plan.tensors.values()] == ["whole", "half", "flag"]
    for entry in plan.tensors.values():
        assert entry.offset % DTYPES[entry.dtype].itemsize == 0
    assert parse(head + bytes(plan.size - len(head))) == plan


def test_a_plan_refuses_what_it_cannot_write() -> None:
    for tensors in (
        [("a", "F32", [1]), ("a", "F32", [1])],
        [("__metadata__", "F32", [1])],
        [("a", "F31", [1])],
    ):
        with pytest.raises(ValueError, match=r"tensor name|dtype"):
            plan_header(tensors, {})


def test_every_dtype_has_one_name() -> None:
    assert [dtype_name(dtype) for dtype in DTYPES.values()] == list(DTYPES)
    with pytest.raises(ValueError, match="complex64"):
        dtype_name(np.dtype(np.complex64))


_VALID = safetensors.numpy.save(
    {"a.w": np.arange(4, dtype=np.float32), "é": np.zeros((0, 2), np.int8), "c": np.ones(2)},
    {"k": "v"},
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "a"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.data())
def test_fuzz_only_this_error_comes_out(data: st.DataObject) -> None:
    """Valid bytes changed, cut and grown, and headers made of anything."""
    if data.draw(st.booleans()):
        content = bytearray(_VALID)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
            content = content or bytearray(b"\0")
    else:
        content = bytearray(file_of(data.draw(_JSON), data.draw(st.binary(max_size=8))))
    try:
        parse(bytes(content))
    except SexpgpuError as error:
        assert error.code == "E-TENSORS-001"  # noqa: PT017
        error.render().encode()
