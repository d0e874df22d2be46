"""Which programs are run: examples by name, and files."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from sexpgpu.tools.portability.__main__ import _programs
from sexpgpu.tools.portability.cases import EXAMPLES, find_programs


def test_examples_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.sx").touch()
    monkeypatch.chdir(tmp_path)
    assert _programs(["tiny", "mine.sx"]) == {
        "tiny": EXAMPLES / "tiny.sx",
        "mine": tmp_path / "mine.sx",
    }
    assert _programs([str(EXAMPLES / "tiny.sx")]) == {"tiny": EXAMPLES / "tiny.sx"}
    assert _programs([]) == find_programs()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["nothing"], "no example is called nothing"),
        (["nothing.sx"], "there is no file nothing.sx"),
        (["a/mine.sx", "b/mine.sx"], "b/mine.sx has the name of another program"),
        (["a/tiny.sx"], "a/tiny.sx has the name of another program"),
    ],
)
def test_what_is_not_there_or_has_no_name_of_its_own(
    asked: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/mine.sx", "b/mine.sx", "a/tiny.sx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=words):
        _programs(asked)
