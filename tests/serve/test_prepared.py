"""An export is lowered once; what was kept is used where it is right, and only there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.serve import load, lowering, prepared
from sexpgpu.serve.hosted import Hosted, Shaping, open_operand
from support.commands import run_alone
from support.exports import checkpoint, export
from support.programs import GPT

_OPEN = """
import sys
from sexpgpu.serve.hosted import Shaping, open_operand
open_operand(sys.argv[1], Shaping())
print("onnx" in sys.modules, "sexpgpu.export.graph.document" in sys.modules)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt")
    checkpoint(GPT, folder)
    export(GPT, folder, "plain")
    return folder / "plain"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache; the entries that will be made stand in the folder."""
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hosted"


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was lowered while the test ran."""
    places = []
    host_export = lowering.host_export

    def counted(path: Path, *rest: object) -> Hosted:
        places.append(path)
        return host_export(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(lowering, "host_export", counted)
    return places


def _facts(hosted: Hosted) -> Hosted:
    return msgspec.structs.replace(hosted, weights={})


def test_the_second_time_it_is_the_same(exported: Path, lowered: list[Path]) -> None:
    first = open_operand(str(exported), Shaping())
    second = open_operand(str(exported), Shaping())
    assert lowered == [exported]
    assert _facts(first) == _facts(second)
    assert first.folder == second.folder == str(exported.resolve())
    assert first.identity == second.identity != b""


def test_it_answers_with_the_same_bits(exported: Path) -> None:
    answers = []
    for _ in range(2):
        with load(str(exported)) as model:
            answers.append(model(np.zeros(model.inputs[0].shape, np.int32)))
    assert answers[0].tobytes() == answers[1].tobytes()


@pytest.mark.parametrize("operand", ["plain", "run"])
def test_the_compiler_is_not_loaded_the_second_time(exported: Path, operand: str) -> None:
    def loads() -> str:
        command = [sys.executable, "-c", _OPEN, str(exported.parent / operand)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert loads() == "True True"
    assert loads() == "False False"


def test_flags_have_entries_of_their_own(exported: Path, cache: Path, lowered: list[Path]) -> None:
    for shaping in (Shaping(), Shaping(at=True), Shaping(precision="bf16")):
        for _ in range(2):
            hosted = open_operand(str(exported), shaping)
            assert hosted.precision == (shaping.precision or "f32")
            assert len(hosted.inputs) == 1 + shaping.at
    assert len(lowered) == len(list(cache.iterdir())) == 3


def test_another_model_or_other_weights_are_not_taken_for_it(
    exported: Path, tmp_path: Path, lowered: list[Path]
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in exported.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    open_operand(str(copy), Shaping())
    document = copy / "model.json"
    document.write_bytes(document.read_bytes() + b"\n")
    open_operand(str(copy), Shaping())
    assert len(lowered) == 2
    weights = copy / "params.safetensors"
    data = weights.read_bytes()
    # The same length of header, with another name in it.
    name = MappedTensors(weights).keys()[0].encode()
    weights.write_bytes(data.replace(b'"' + name + b'"', b'"' + b"_" * len(name) + b'"', 1))
    with pytest.raises(SexpgpuError) as caught:
        open_operand(str(copy), Shaping())
    assert caught.value.code == "E-CKPT-003"


def test_another_version_of_the_program_makes_its_own(
    exported: Path, monkeypatch: pytest.MonkeyPatch, lowered: list[Path]
) -> None:
    open_operand(str(exported), Shaping())
    monkeypatch.setattr(prepared, "_fingerprint", lambda: iter(["another"]))
    open_operand(str(exported), Shaping())
    assert len(lowered) == 2


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x81\xa5model\xc4\x01x"])
def test_a_damaged_entry_is_made_again(
    exported: Path, cache: Path, lowered: list[Path], data: bytes
) -> None:
    open_operand(str(exported), Shaping())
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(data)
    open_operand(str(exported), Shaping())
    assert len(lowered) == 2
    assert entry.read_bytes() == whole


def test_without_a_cache_it_is_lowered_each_time(
    exported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lowered: list[Path]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "file"))
    open_operand(str(exported), Shaping())
    open_operand(str(exported), Shaping())
    assert len(lowered) == 2


def test_a_checkpoint_is_lowered_once(exported: Path, cache: Path) -> None:
    run = str(exported.parent / "run")
    first, second = (open_operand(run, Shaping()) for _ in range(2))
    assert _facts(first) == _facts(second)
    assert first.checkpoint == second.checkpoint is not None
    assert first.weight_paths == {}, "its weights are read where they are"
    open_operand(run, Shaping(trained=True))
    assert len(list(cache.iterdir())) == 2


def test_a_later_step_is_another_checkpoint(tmp_path: Path) -> None:
    location = checkpoint(GPT, tmp_path)
    before = open_operand(str(location), Shaping())
    done = run_alone(tmp_path, "init", "program.sx", "--checkpoint-dir", "run", "--step", "7")
    assert done.returncode == 0, done.stderr
    after = open_operand(str(location), Shaping())
    assert (before.step, after.step) == (0, 7)
    assert before.identity != after.identity


def test_weights_that_another_file_holds_are_read_from_there_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_file({"table": np.eye(4, 3, dtype=np.float32)}, "given.safetensors")
    program = """
(def record (fields :x (list i32 2)))
(defmodel net ()
  (parts table (param (list 4 3) :load "given.safetensors" :key "table" :frozen true)
         out (linear 3 2))
  (apply (x) (out (take table x))))
(def model (net))
"""
    location = str(checkpoint(program, tmp_path))
    for _ in range(2):
        hosted = open_operand(location, Shaping())
        (array,) = hosted.weights.values()
        assert array.tolist() == np.eye(4, 3).tolist()
    save_file({"table": np.ones((4, 3), np.float32)}, "given.safetensors")
    with pytest.raises(SexpgpuError) as caught:
        open_operand(location, Shaping())
    assert caught.value.code == "E-LOAD-001"
