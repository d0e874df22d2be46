"""The weights of an export: once, in order, in the dtypes that they are stored in."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from sexpgpu.export import weight_file
from sexpgpu.export.graph.graph import Graph, Value
from sexpgpu.export.graph.types import Array, DType, TensorType
from sexpgpu.export.onnx.build import ExternalTensor
from sexpgpu.export.weight_file import KeptFile, WeightFile
from sexpgpu.schemas.exported import WEIGHTS
from sexpgpu.schemas.tensor_file import MappedTensors
from support.arrays import assert_same, random_array

SHAPE = (5, 7)
VALUES = {f"w.{dtype}": random_array(i, dtype, SHAPE) for i, dtype in enumerate(DType)}
GRAPH = Graph(
    weights={
        path: Value(TensorType(DType.of(array), array.shape), name=path)
        for path, array in VALUES.items()
    }
)


def as_checkpoints_give(path: str) -> Array:
    array = VALUES[path]
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def written(tmp_path: Path, storage: Any = "f32", read: Any = as_checkpoints_give) -> WeightFile:
    weights = WeightFile(GRAPH, storage)
    weights.write(tmp_path, read)
    return weights


def test_every_dtype_comes_back(tmp_path: Path) -> None:
    weights = written(tmp_path)
    for path, array in VALUES.items():
        assert_same(weights.array(path), array)


def test_other_programs_read_it(tmp_path: Path) -> None:
    written(tmp_path)
    found = load_file(tmp_path / WEIGHTS)
    assert set(found) == set(VALUES)
    for path in VALUES:
        assert_same(found[path], as_checkpoints_give(path))


def test_bf16_storage_rounds_floats_to_nearest_even(tmp_path: Path) -> None:
    weights = written(tmp_path, "bf16")
    with MappedTensors(tmp_path / WEIGHTS) as tensors:
        stored = {name: tensors.entry(name).dtype for name in tensors}
    assert stored == {
        "w.f32": "BF16",
        "w.bf16": "BF16",
        "w.f64": "F64",
        "w.i32": "I32",
        "w.i64": "I64",
        "w.bool": "BOOL",
    }
    rounded = VALUES["w.f32"].astype(ml_dtypes.bfloat16).astype(np.float32)
    assert_same(weights.array("w.f32"), rounded)
    assert_same(weights.array("w.bf16"), VALUES["w.bf16"])


def test_bf16_may_come_as_itself(tmp_path: Path) -> None:
    weights = written(tmp_path, read=VALUES.__getitem__)
    assert_same(weights.array("w.bf16"), VALUES["w.bf16"])


@pytest.mark.parametrize("storage", ["f32", "bf16"])
def test_places_are_known_before_and_right(storage: Any, tmp_path: Path) -> None:
    weights = WeightFile(GRAPH, storage)
    places = {path: weights.place(path) for path in VALUES}
    size = weights.nbytes
    weights.write(tmp_path, as_checkpoints_give)
    data = (tmp_path / WEIGHTS).read_bytes()
    total = 0
    for path, place in places.items():
        assert isinstance(place, ExternalTensor)
        part = data[place.offset : place.offset + place.length]
        array = np.frombuffer(part, place.dtype.numpy).reshape(SHAPE)
        assert_same(array.astype(VALUES[path].dtype), weights.array(path))
        assert place.offset % place.dtype.itemsize == 0
        total += place.length
    assert total == size


def test_a_weight_without_elements_has_no_place(tmp_path: Path) -> None:
    empty = Graph(weights={"w": Value(TensorType(DType.F32, (0, 4)), name="w")})
    weights = WeightFile(empty)
    assert_same(weights.place("w"), np.empty((0, 4), np.float32))
    weights.write(tmp_path, lambda path: np.empty((0, 4), np.float32))
    assert weights.array("w").shape == (0, 4)
    assert weights.nbytes == 0


def test_one_weight_is_asked_for_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    alive = 0

    class Counted(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def read(path: str) -> Array:
        nonlocal alive
        assert alive <= 1, "the one before may be held until the next one comes"
        alive += 1
        asked.append(path)
        array: Array = as_checkpoints_give(path).copy().view(Counted)
        return array

    written(tmp_path, read=read)
    assert sorted(asked) == sorted(VALUES)


def test_a_conversion_goes_by_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_file, "PIECE", 16)
    sizes: list[int] = []
    convert = weight_file._converted

    def watched(array: Array, dtype: np.dtype[Any]) -> Iterator[Array]:
        for piece in convert(array, dtype):
            sizes.append(piece.size)
            yield piece

    monkeypatch.setattr(weight_file, "_converted", watched)
    weights = written(tmp_path, "bf16")
    assert max(sizes) == 4
    assert_same(weights.array("w.bf16"), VALUES["w.bf16"])


def test_the_hash_is_the_files(tmp_path: Path) -> None:
    import hashlib

    weights = written(tmp_path)
    assert weights.sha256 == hashlib.sha256((tmp_path / WEIGHTS).read_bytes()).hexdigest()


# A checkpoint's file that is the same already


def unread(path: str) -> Array:
    pytest.fail("it is copied as it is")


@pytest.fixture
def kept(tmp_path: Path) -> KeptFile:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    return KeptFile(folder / WEIGHTS, written(folder).sha256)


def cannot(number: int) -> Any:
    def copy_file_range(*given: object) -> int:
        raise OSError(number, os.strerror(number))

    return copy_file_range


@pytest.mark.parametrize("copy", ["by the system", "across devices", "a little at a time", "by us"])
def test_it_is_copied(
    copy: str, kept: KeptFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = getattr(os, "copy_file_range", None)
    if copy == "across devices":
        monkeypatch.setattr(os, "copy_file_range", cannot(errno.EXDEV), raising=False)
    elif copy == "by us":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    elif copy == "a little at a time" and system is not None:
        some = lambda a, b, count: system(a, b, min(count, 100))  # noqa: E731
        monkeypatch.setattr(os, "copy_file_range", some)
    weights = WeightFile(GRAPH)
    weights.write(tmp_path, unread, kept)
    assert (tmp_path / WEIGHTS).read_bytes() == kept.path.read_bytes()
    assert weights.sha256 == kept.sha256
    for path, array in VALUES.items():
        assert_same(weights.array(path), array)


def test_a_disk_that_is_full_is_no_other_way(
    kept: KeptFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", cannot(errno.ENOSPC), raising=False)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        WeightFile(GRAPH).write(tmp_path, unread, kept)


@pytest.mark.parametrize("other", ["fewer weights", "another dtype", "a tail"])
def test_what_is_not_the_same_is_written(other: str, kept: KeptFile, tmp_path: Path) -> None:
    graph, storage = GRAPH, "f32"
    if other == "fewer weights":
        graph = Graph(weights=dict([*GRAPH.weights.items()][1:]))
    elif other == "another dtype":
        storage = "bf16"
    else:
        kept.path.write_bytes(kept.path.read_bytes() + b"more")
    weights, again = WeightFile(graph, storage), WeightFile(graph, storage)  # type: ignore[arg-type]
    weights.write(tmp_path, as_checkpoints_give, kept)
    (tmp_path / "again").mkdir()
    again.write(tmp_path / "again", as_checkpoints_give)
    assert (tmp_path / WEIGHTS).read_bytes() == (tmp_path / "again" / WEIGHTS).read_bytes()
    assert weights.sha256 == again.sha256
    assert (weights.sha256 == kept.sha256) is (other == "a tail")
