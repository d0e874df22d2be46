"""The table of error codes: what is raised is in it, and what is in it is tested."""

from __future__ import annotations

import re
from pathlib import Path

from sexpgpu.schemas.codes import CODES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("export", "schemas", "serve", "tools")
_CODE = re.compile(r"\bE-[A-Z]+-\d{3}\b")


def _codes_in(folders: tuple[str, ...], leave_out: Path) -> set[str]:
    return {
        code
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sx") and path.resolve() != leave_out
        for code in _CODE.findall(path.read_text("utf-8", errors="ignore"))
    }


def test_every_code_of_the_sources_is_explained() -> None:
    table = ROOT / "schemas" / "codes.py"
    assert _codes_in(PACKAGES, table) - set(CODES) == set()


def test_every_explained_code_is_raised() -> None:
    table = ROOT / "schemas" / "codes.py"
    assert set(CODES) - _codes_in(PACKAGES, table) == set()


def test_every_code_is_tested() -> None:
    assert set(CODES) - _codes_in(("tests",), Path(__file__).resolve()) == set()


def test_titles_are_phrases_and_texts_sentences() -> None:
    for code, explanation in CODES.items():
        assert not explanation.title.endswith("."), code
        assert explanation.text.endswith("."), code
