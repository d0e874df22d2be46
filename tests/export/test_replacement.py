"""What an export may replace, and that it is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sexpgpu.export import replacement
from sexpgpu.export.replacement import check_replaceable, replacing
from sexpgpu.schemas.errors import SexpgpuError

MADE = '{"version": 1, "producer": "sexpgpu 0.1.0"}'


def fill(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def write(directory: Path, text: str = "new") -> None:
    with replacing(directory) as temporary:
        for name in replacement.FILES:
            (temporary / name).write_text(text)


def test_a_new_directory(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "out")
    assert contents(tmp_path / "a" / "b" / "out") == dict.fromkeys(replacement.FILES, "new")
    assert [p.name for p in (tmp_path / "a" / "b").iterdir()] == ["out"]
    assert (tmp_path / "a" / "b" / "out").stat().st_mode & 0o777 == 0o777 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"model.json": MADE},
        {"model.json": MADE, "params.safetensors": "old"},
        {"model.json": MADE, "params.safetensors": "old", "model.onnx": "old"},
    ],
)
def test_what_is_replaced(files: dict[str, str], tmp_path: Path) -> None:
    directory = fill(tmp_path / "out", files)
    check_replaceable(directory)
    write(directory)
    assert contents(directory) == dict.fromkeys(replacement.FILES, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("files", "came"),
    [
        ({"notes.txt": "mine"}, "a directory with notes.txt"),
        (
            {"model.json": MADE, "params.safetensors": "", "model.onnx": "", "notes.txt": "mine"},
            "a directory with notes.txt",
        ),
        ({"model.onnx": "mine"}, "a directory with model.onnx"),
        ({"params.safetensors": "mine"}, "a directory with params.safetensors"),
        ({"model.json": "{}"}, "a directory with model.json"),
        ({"model.json": '{"producer": "keras"}'}, "a directory with model.json"),
        ({"model.json": "no json"}, "a directory with model.json"),
        ({"checkpoint.json": "{}", "model.json": MADE}, "a directory with checkpoint.json"),
    ],
)
def test_what_is_left_alone(files: dict[str, str], came: str, tmp_path: Path) -> None:
    directory = fill(tmp_path / "out", files)
    refused(directory, came)
    assert contents(directory) == files


def refused(path: Path, came: str) -> None:
    for attempt in (check_replaceable, write):
        with pytest.raises(SexpgpuError) as caught:
            attempt(path)
        assert caught.value.code == "E-EXPORT-001"
        assert caught.value.came == came
        assert str(path) in caught.value.message


def test_a_file_and_links_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(tmp_path / "file", "a file")
    export = fill(tmp_path / "export", {"model.json": MADE})
    (tmp_path / "link").symlink_to(export)
    refused(tmp_path / "link", "a symbolic link")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    refused(tmp_path / "broken", "a symbolic link")
    assert contents(export) == {"model.json": MADE}


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    directory = fill(tmp_path / "out", {"model.json": MADE})

    def fail() -> None:
        with replacing(directory) as temporary:
            (temporary / "model.json").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert contents(directory) == {"model.json": MADE}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_directory_that_fills_meanwhile_is_left_alone(tmp_path: Path) -> None:
    directory = fill(tmp_path / "out", {})

    def write_late() -> None:
        with replacing(directory) as temporary:
            (temporary / "model.json").write_text("new")
            (directory / "notes.txt").write_text("mine")

    with pytest.raises(SexpgpuError) as caught:
        write_late()
    assert caught.value.code == "E-EXPORT-001"
    assert contents(directory) == {"notes.txt": "mine"}


def test_there_is_always_something_at_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = fill(tmp_path / "out", {"model.json": MADE})
    exchanged: list[bool] = []
    exchange: Callable[[Path, Path], bool] = replacement._exchange

    def watched(a: Path, b: Path) -> bool:
        exchanged.append(exchange(a, b))
        return exchanged[-1]

    monkeypatch.setattr(replacement, "_exchange", watched)
    monkeypatch.setattr(os, "rename", lambda *paths: pytest.fail("not in one moment"))
    write(directory)
    assert exchanged == [True]


def test_where_two_directories_cannot_change_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement, "_exchange", lambda a, b: False)
    directory = fill(tmp_path / "out", {"model.json": MADE})
    write(directory)
    assert contents(directory) == dict.fromkeys(replacement.FILES, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]

    rename = os.rename

    def fail_once(a: Path, b: Path) -> None:
        if b == directory and not failed:
            failed.append(True)
            raise OSError(5, "Input/output error")
        rename(a, b)

    failed: list[bool] = []
    (directory / "model.json").write_text(MADE)
    monkeypatch.setattr(os, "rename", fail_once)
    with pytest.raises(SexpgpuError) as caught:
        write(directory, "newer")
    assert caught.value.code == "E-FILE-001"
    assert contents(directory)["model.onnx"] == "new"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SexpgpuError) as caught:
        write(tmp_path / "file" / "out")
    assert caught.value.code == "E-FILE-001"
    assert "cannot be written" in caught.value.message
    assert caught.value.place == str(tmp_path / "file")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    def fill_up() -> None:
        with replacing(tmp_path / "out"):
            raise OSError(28, "No space left on device", "model.onnx")

    with pytest.raises(SexpgpuError) as caught:
        fill_up()
    assert caught.value.code == "E-FILE-001"
    assert (caught.value.came, caught.value.place) == ("No space left on device", "model.onnx")
    assert list(tmp_path.iterdir()) == []
