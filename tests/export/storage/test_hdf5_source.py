"""HDF5: what h5py reads of a file, and what is refused before memory is taken."""

from __future__ import annotations

import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
from support.commands import environment

h5py = pytest.importorskip("h5py")

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((37, 50)).astype(np.float32)
DAMAGE = """
import pathlib, random, sys
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
path, generator = pathlib.Path(sys.argv[1]), random.Random(7)
whole, refused = path.read_bytes(), 0
for case in range(300):
    content = bytearray(whole)
    for _ in range(generator.randint(1, 4)):
        content[generator.randrange(len(content))] = generator.choice([0, 1, 255, 77])
    path.write_bytes(content[: generator.choice([None, generator.randrange(len(content))])])
    try:
        source = open_source(path)
        for key in source.keys():
            source.stored(key)
    except SexpgpuError as error:
        refused += error.code == "E-LOAD-004"
print(refused)
"""
ZIPPED = {"chunks": (10, 8), "compression": "gzip"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.h5"


def read_all(path: Path) -> dict[str, Array]:
    source = open_source(path)
    return {key: source.stored(key) for key in source.keys()}  # noqa: SIM118


def refusal(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        read_all(path)
    assert caught.value.code == "E-LOAD-004"
    caught.value.render().encode()
    return caught.value


def is_as_h5py_reads_it(path: Path) -> list[str]:
    found = read_all(path)
    with h5py.File(path) as file:
        for key, array in found.items():
            np.testing.assert_array_equal(array, file[key][...])
            assert array.shape == open_source(path).describe(key)[1]
    return list(found)


def test_groups_are_paths(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["rnn_1/rnn_1/kernel:0"] = WEIGHT
        file["rnn_1/rnn_1/bias:0"] = WEIGHT[0]
        file["rnn_1"].attrs["weight_names"] = [b"kernel:0", b"bias:0"]
    assert is_as_h5py_reads_it(path) == ["rnn_1/rnn_1/bias:0", "rnn_1/rnn_1/kernel:0"]
    source = open_source(path)
    np.testing.assert_array_equal(source.read("rnn_1/rnn_1/kernel:0", DType.F64, (37, 50)), WEIGHT)
    assert source.memory("rnn_1/rnn_1/kernel:0") == 0


DTYPES = [">f4", "<f8", "f2", "i1", "<i2", ">i4", "i8", "u1", "u8", "?"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(path: Path, dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    with h5py.File(path, "w") as file:
        file["w"], file["scalar"], file["none"] = array, array[1, 1], array[:0]
    assert is_as_h5py_reads_it(path) == ["none", "scalar", "w"]
    if dtype in (">f4", "f2"):
        np.testing.assert_array_equal(open_source(path).read("w", DType.F32), array)


@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (10, 8)},
        {"chunks": (37, 50)},
        ZIPPED,
        {**ZIPPED, "shuffle": True},
        {**ZIPPED, "shuffle": True, "fletcher32": True},
        {"chunks": (7, 50), "fletcher32": True},
    ],
)
@pytest.mark.parametrize("dtype", ["f4", ">f8", "i2"])
def test_chunks(path: Path, options: dict[str, Any], dtype: str) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("w", data=(WEIGHT * 9).astype(dtype), **options)
    assert is_as_h5py_reads_it(path) == ["w"]
    assert open_source(path).memory("w") == WEIGHT.size * np.dtype(dtype).itemsize


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    chunk=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    shuffle=st.booleans(),
)
@settings(max_examples=30)
def test_any_chunks(
    tmp_path_factory: Any, shape: list[int], chunk: list[int], shuffle: bool
) -> None:
    path = tmp_path_factory.mktemp("chunks") / "w.h5"
    chunks = tuple(min(pair) for pair in zip(chunk, shape, strict=False))
    with h5py.File(path, "w") as file:
        data = RANDOM.integers(0, 4, shape)
        file.create_dataset("w", data=data, chunks=chunks, compression="gzip", shuffle=shuffle)
    assert is_as_h5py_reads_it(path) == ["w"]


def test_what_is_no_number_and_what_leads_elsewhere_is_passed_over(path: Path) -> None:
    other = path.with_name("other.h5")
    with h5py.File(other, "w") as file:
        file["secret"] = WEIGHT
    with h5py.File(path, "w") as file:
        file["w"] = WEIGHT
        file["text"] = "words"
        file["record"] = np.zeros(3, [("a", "f4"), ("b", "i4")])
        file["nothing"] = h5py.Empty("f4")
        odd = h5py.h5t.IEEE_F32LE.copy()
        odd.set_fields(31, 20, 11, 0, 20)  # an exponent of 11 bits, in 32
        odd.set_ebias(1023)
        h5py.h5d.create(file.id, b"odd", odd, h5py.h5s.create_simple((3,)))
        file["soft"] = h5py.SoftLink("/w")
        file["elsewhere"] = h5py.ExternalLink(str(other), "/secret")
    assert is_as_h5py_reads_it(path) == ["w"]


def outside(file: Any, path: Path) -> None:
    raw = path.with_name("raw")
    raw.write_bytes(WEIGHT.tobytes())
    file.create_dataset("w", WEIGHT.shape, "f4", external=[(str(raw), 0, WEIGHT.nbytes)])


def virtual(file: Any, path: Path) -> None:
    layout = h5py.VirtualLayout((37, 50), "f4")
    layout[:] = h5py.VirtualSource(str(path.with_name("other.h5")), "w", (37, 50))
    file.create_virtual_dataset("w", layout)


def loop(file: Any, path: Path) -> None:
    file["group/w"] = WEIGHT
    file["group/again"] = file["group"]


def wide(file: Any, path: Path) -> None:
    """Twenty groups, each of which holds the one before ten times."""
    group = file.create_group("g")
    for step in range(20):
        above = file.create_group(f"g{step}")
        for name in "0123456789":
            above[name] = group
        group = above


def chunks_missing(file: Any, path: Path) -> None:
    dataset = file.create_dataset("w", (100, 100), "f4", chunks=(10, 10))
    dataset[:20, :20] = 1


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (outside, "is kept in another file"),
        (virtual, "is kept in another file"),
        (loop, "nested 64 deep"),
        (wide, "more than 30,000 things"),
        (chunks_missing, "parts that were never written"),
        (lambda f, p: f.create_dataset("w", (1 << 20, 1 << 20), "f4"), "was never written"),
        (lambda f, p: f.create_dataset("w", (0, 1 << 62), "f4"), "too large"),
        (lambda f, p: f.create_dataset("w", (1 << 30,), "f4", chunks=(1 << 28,)), "never written"),
        (lambda f, p: f.create_dataset("w", data=WEIGHT, compression="lzf"), "unknown method"),
        (lambda f, p: f.create_dataset("w", data=WEIGHT, scaleoffset=3), "unknown method"),
    ],
)
def test_what_is_refused(path: Path, write: Any, reason: str) -> None:
    with h5py.File(path, "w") as file:
        write(file, path)
    assert reason in refusal(path).message


def test_a_chunk_that_would_become_more_than_it_says(path: Path) -> None:
    """An honest chunk's bytes are exchanged for zeros that fill much more."""
    noise = RANDOM.integers(0, 256, 1 << 20).astype(np.uint8)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("w", data=noise, chunks=noise.shape, compression="gzip")
        info = dataset.id.get_chunk_info(0)
    bomb = zlib.compress(bytes(1 << 27))
    assert len(bomb) < info.size
    content = bytearray(path.read_bytes())
    content[info.byte_offset : info.byte_offset + len(bomb)] = bomb
    path.write_bytes(content)
    assert "another size" in refusal(path).message


def test_chunks_that_claim_too_much(path: Path) -> None:
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("w", (1 << 28,), "u1", chunks=(1 << 28,), compression="gzip")
        dataset.id.write_direct_chunk((0,), b"few bytes", 0)
    assert "claims 268,435,456 bytes of 9" in refusal(path).message


def test_a_user_block(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        file["w"] = WEIGHT
    assert "user block" in refusal(path).message


def test_other_files(path: Path) -> None:
    for content, reason in ((b"", "too short"), (b"no HDF5 at all", "no HDF5 file")):
        path.write_bytes(content)
        assert reason in refusal(path).message


def test_without_the_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(bytes(100))
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert refusal(path).help == "pip install 'sexpgpu[hdf5]'"


def keras_archive(path: Path, weights: bytes, **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", weights)
    return path


def test_keras_archives(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = WEIGHT
        file.create_dataset("zipped", data=WEIGHT, **ZIPPED)
    archive = keras_archive(path.with_suffix(".keras"), path.read_bytes())
    found = read_all(archive)
    assert list(found) == ["layers/dense/vars/0", "zipped"]
    for array in found.values():
        np.testing.assert_array_equal(array, WEIGHT)
    archive.write_bytes(archive.read_bytes().replace(b"\x89HDF", b"\x89HDG"))
    assert "no HDF5 file" in refusal(archive).message


def test_keras_archives_that_are_none(path: Path) -> None:
    archive = path.with_suffix(".keras")
    archive.write_bytes(b"PK and no more")
    assert "no zip file that holds model.weights.h5" in refusal(archive).message
    keras_archive(archive, bytes(10**6), compression=zipfile.ZIP_DEFLATED)
    assert "is compressed" in refusal(archive).message
    content = bytearray(keras_archive(archive, bytes(1000)).read_bytes())
    at = content.rfind(b"PK\1\2")
    content[at + 20 : at + 28] = (1 << 20).to_bytes(4, "little") * 2
    archive.write_bytes(content)
    assert "past its end" in refusal(archive).message


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    """In a process of its own, since HDF5's library reads what describes the datasets."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file["a/b"] = WEIGHT[:3, :5]
        file.create_dataset("c", data=WEIGHT[:20, :20], chunks=(7, 7), compression="gzip")
    command = [sys.executable, "-c", DAMAGE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
