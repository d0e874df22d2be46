"""Safetensors files mapped and streamed, against the safetensors library both ways."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import DTYPES, dtype_name, plan_header
from sexpgpu.schemas.tensor_file import MappedTensors, sha256_of, write_tensors


def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    made = {name: generator.integers(0, 2, (3, 5)).astype(dtype) for name, dtype in DTYPES.items()}
    return {**made, "scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 7), np.int64)}


def written(tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    described = [(name, dtype_name(a.dtype), a.shape) for name, a in tensors.items()]
    result = write_tensors(file, described, tensors.__getitem__, metadata)
    assert result.sha256 == hashlib.sha256(file.getvalue()).hexdigest()
    assert result.header.size == len(file.getvalue())
    return file.getvalue()


def test_round_trip_of_every_dtype(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(written(arrays(), {"k": "v"}))
    with MappedTensors(path) as tensors:
        assert tensors.header.metadata == {"k": "v"}
        assert set(tensors) == set(tensors.keys()) == set(arrays())
        assert len(tensors) == len(arrays())
        for name, array in arrays().items():
            assert name in tensors
            read = tensors.tensor(name)
            assert (read.dtype, read.shape) == (array.dtype, array.shape)
            assert read.tobytes() == array.tobytes()
            assert tensors.entry(name).nbytes == array.nbytes
        with pytest.raises(KeyError):
            tensors.tensor("none")


def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(written(arrays(), {"k": "v"}))
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"k": "v"}
        assert set(file.keys()) == set(arrays())
        for name in ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U8", "BOOL", "empty"):
            np.testing.assert_array_equal(file.get_tensor(name), arrays()[name])
        assert file.get_slice("BF16").get_dtype() == "BF16"


def test_we_read_what_the_library_writes(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    made = {name: a for name, a in arrays().items() if not name.startswith("F8")}
    safetensors.numpy.save_file(made, path)
    tensors = MappedTensors(path)
    for name, array in made.items():
        read = tensors.tensor(name)
        assert (read.dtype, read.tobytes()) == (array.dtype, array.tobytes())


def test_arrays_outlive_the_file_and_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(written({"a": np.arange(4, dtype=np.float32)}))
    with MappedTensors(path) as tensors:
        array = tensors.tensor("a")
    assert array.tolist() == [0, 1, 2, 3]
    assert not array.flags.writeable


def test_bfloat16_keeps_its_bits(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    path = tmp_path / "w.safetensors"
    path.write_bytes(written({"a": bits.view(ml_dtypes.bfloat16)}))
    np.testing.assert_array_equal(MappedTensors(path).tensor("a").view(np.uint16), bits)


def test_the_same_tensors_give_the_same_bytes() -> None:
    assert written(arrays(), {"a": "1", "b": "2"}) == written(arrays(), {"b": "2", "a": "1"})


def test_pieces_and_arrays_of_any_layout_give_the_same_bytes() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    whole, parts, turned = io.BytesIO(), io.BytesIO(), io.BytesIO()
    described = [("a", "I32", (4, 6))]
    write_tensors(whole, described, lambda _: array)
    write_tensors(parts, described, lambda _: (array[i : i + 2] for i in (0, 2)))
    write_tensors(turned, described, lambda _: np.asfortranarray(array))
    assert whole.getvalue() == parts.getvalue() == turned.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        np.zeros(3, np.float32),
        np.zeros(5, np.float32),
        np.zeros(4, np.float64),
        np.zeros(4, ">f4"),
        [np.zeros(3, np.float32)],
    ],
)
def test_other_elements_than_announced_are_refused(content: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a: "):
        write_tensors(io.BytesIO(), [("a", "F32", [4])], lambda _: content)


def test_writing_takes_one_piece_of_memory() -> None:
    class Sink(io.RawIOBase):
        def write(self, data: object) -> int:
            return memoryview(data).nbytes  # type: ignore[arg-type]

    rows = [(f"w{i}", "F32", (1 << 18,)) for i in range(32)]
    tracemalloc.start()
    try:
        write_tensors(Sink(), rows, lambda _: np.zeros(1 << 18, np.float32))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_file_over_two_gibibytes_is_mapped(tmp_path: Path) -> None:
    """Written with holes, so that the test takes no disk; the last tensor stands past 2 GiB."""
    path = tmp_path / "w.safetensors"
    large = 2**31 + 8
    with open(path, "wb") as file:
        head, plan = plan_header([("large", "U8", [large]), ("last", "U8", [4])], {})
        file.write(head)
        file.seek(plan.tensors["last"].offset)
        file.write(bytes([1, 2, 3, 4]))
    tensors = MappedTensors(path)
    assert tensors.tensor("last").tolist() == [1, 2, 3, 4]
    assert tensors.tensor("large").shape == (large,)


def test_a_bool_of_another_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    content = bytearray(written({"a": np.array([True, False])}))
    content[-1] = 7
    path.write_bytes(content)
    with pytest.raises(SexpgpuError, match="E-TENSORS-001") as caught:
        MappedTensors(path).tensor("a")
    assert caught.value.came == "7"


@pytest.mark.parametrize("name", ["none.safetensors", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SexpgpuError, match="E-FILE-001"):
        MappedTensors(tmp_path / name)


def test_the_hash_of_a_file_tells_how_far_it_is() -> None:
    data, seen = bytes(100), []
    assert sha256_of(io.BytesIO(data), seen.append) == hashlib.sha256(data).hexdigest()
    assert seen == [100]
