"""Writing checkpoints: whole or not at all, and nothing ever removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.export.storage.checkpoint_writer import TensorSet
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.checkpoint import Parameter
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import MappedTensors
from support.checkpoints import PARAMETERS, save


def failing(at: str) -> TensorSet:
    """The parameters, of which one cannot be had."""

    def read(path: str) -> np.ndarray:
        if path == at:
            raise KeyboardInterrupt
        return PARAMETERS[path]

    return TensorSet(TensorSet.of(PARAMETERS).parameters, read)


def test_the_files_are_those_of_the_format(tmp_path: Path) -> None:
    target = save(str(tmp_path / "run"))
    assert target.path == str(tmp_path / "run" / "step-00000020")
    assert os.listdir(tmp_path / "run") == ["step-00000020"]
    assert sorted(os.listdir(target.path)) == [
        "checkpoint.json",
        "ema.safetensors",
        "model.json",
        "optimizer.safetensors",
        "params.safetensors",
    ]


def test_bfloat16_is_stored_as_f32(tmp_path: Path) -> None:
    target = save(str(tmp_path / "run"))
    tensors = MappedTensors(f"{target.path}/params.safetensors")
    dtypes = {name: tensors.entry(name).dtype for name in tensors}
    assert dtypes == {"tok": "F32", "head.w": "F32", "count": "I64", "flags": "BOOL"}


def test_the_same_step_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = save(str(tmp_path / "a")), save(str(tmp_path / "b"))
    for name in first.names():
        assert (first / name).read(1 << 20) == (second / name).read(1 << 20)


@pytest.mark.parametrize("path", list(PARAMETERS))
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_a_step_that_fails_leaves_the_one_before(tmp_path: Path, where: str, path: str) -> None:
    at = str(tmp_path / "run") if where == "disk" else f"memory://writer-{path}/run"
    save(at, 10)
    with pytest.raises(KeyboardInterrupt):
        save(at, 20, params=failing(path))
    assert open_checkpoint(at).document.step == 10
    save(at, 20)
    assert open_checkpoint(at).document.step == 20


def test_on_an_object_store_the_document_goes_last() -> None:
    location = Location.parse("memory://writer-order/run")
    with pytest.raises(KeyboardInterrupt):
        save(location, 20, optimizer=failing("tok"))
    names = (location / "step-00000020").names()
    assert "params.safetensors" in names
    assert "checkpoint.json" not in names


@pytest.mark.parametrize("at", ["disk", "memory://writer-exists/run"])
def test_a_step_is_never_overwritten(tmp_path: Path, at: str) -> None:
    at = str(tmp_path / "run") if at == "disk" else at
    target = save(at)
    before = (target / "checkpoint.json").read(1 << 20)
    with pytest.raises(SexpgpuError, match="E-FILE-001") as caught:
        save(at, slug="other")
    assert "exists already" in caught.value.message
    assert (target / "checkpoint.json").read(1 << 20) == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SexpgpuError) as caught:
        save(str(tmp_path / "file" / "run"))
    assert caught.value.code == "E-LOC-002"
    assert caught.value.came == "Not a directory"


_KILLED = """
import os, sys
import numpy as np
from sexpgpu.export.storage.checkpoint_writer import TensorSet
from sexpgpu.schemas.checkpoint import Parameter
from support.checkpoints import PARAMETERS, save

def read(path):
    print(path, flush=True)
    sys.stdin.readline()
    return PARAMETERS[path]

save(sys.argv[1], 30, params=TensorSet(TensorSet.of(PARAMETERS).parameters, read))
"""


@pytest.mark.parametrize("tensors", [1, 3])
def test_a_run_killed_while_it_writes_leaves_the_step_before(tmp_path: Path, tensors: int) -> None:
    save(str(tmp_path / "run"), 20)
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(tensors):
            assert process.stdout.readline()
            if number < tensors - 1:
                process.stdin.write("\n")
                process.stdin.flush()
        process.send_signal(signal.SIGKILL)
    assert len(os.listdir(tmp_path / "run")) == 2
    assert open_checkpoint(str(tmp_path / "run")).document.step == 20
    save(str(tmp_path / "run"), 30)
    open_checkpoint(str(tmp_path / "run")).verify()


def test_tensors_are_asked_for_one_at_a_time(tmp_path: Path) -> None:
    asked: list[str] = []

    def read(path: str) -> np.ndarray:
        asked.append(path)
        return np.full(4, len(asked), np.float32)

    parameters = [Parameter(f"w{number}", [4], "f32") for number in range(3)]
    target = save(
        str(tmp_path / "run"),
        params=TensorSet(parameters, read),
        averages=None,
        optimizer=None,
        parameters=parameters,
    )
    assert asked == ["w0", "w1", "w2"]
    tensors = MappedTensors(f"{target.path}/params.safetensors")
    assert tensors.tensor("w2").tolist() == [3] * 4
