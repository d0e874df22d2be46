"""The lines on the runtimes' pages, run as they stand there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sexpgpu.tools.portability.cases import Case, Form, find_programs, prepare
from sexpgpu.tools.portability.environments import find
from sexpgpu.tools.portability.pages import blocks, check_page
from sexpgpu.tools.portability.runtime import Runtime, read_runtimes

#: Runtimes that this project's own environment has.
HERE = {"onnxruntime", "reference"}

RUNTIMES = [runtime for runtime in read_runtimes().values() if not runtime.is_node]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return prepare(find_programs()["tiny"], Form(), tmp_path_factory.mktemp("case"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """An environment whose Python is this one."""
    (tmp_path / "bin").mkdir()
    script = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    (tmp_path / "bin" / "python").write_text(script)
    (tmp_path / "bin" / "python").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda r: r.name)
def test_the_lines_of_a_page_run_an_export(runtime: Runtime, here: Path, case: Case) -> None:
    place = here if runtime.name in HERE else find(runtime)
    if place is None:
        pytest.skip(
            f"{runtime.title} is not set up: python -m sexpgpu.tools.portability sets it up"
        )
    assert check_page(runtime.page, place, case) == ""


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("output = inputs", "gives 48 elements of 1536"),
        ("output = numpy.zeros((3, 16, 32), numpy.float32)", "its output differs by 1 of"),
        ("raise SystemExit('no such runtime')", "its python block fails: no such runtime"),
    ],
)
def test_lines_that_do_not(lines: str, words: str, here: Path, case: Case) -> None:
    page = here / "page.md"
    page.write_text(
        "```python\nimport numpy\ninputs = numpy.zeros((3, 16), numpy.int32)\n" + lines + "\n```\n"
    )
    assert words in check_page(page, here, case)


def test_a_page_without_lines(here: Path, case: Case) -> None:
    page = here / "page.md"
    page.write_text("    pip install it\n\n```sh\ntrue\n```\n")
    assert check_page(page, here, case) == "shows no lines that run an export"
    assert blocks(page) == [("sh", "true\n")]


def test_the_lines_before_are_run_too(here: Path, case: Case) -> None:
    page = here / "page.md"
    page.write_text("```sh\nls export >&2\nfalse\ntrue\n```\n```python\npass\n```\n")
    assert check_page(page, here, case).startswith("its sh block fails: model.json")
