"""The pages that are written from the code are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sexpgpu.export.language.data import ListDatum, write
from sexpgpu.export.language.prelude import prelude_data
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.schemas.codes import CODES
from sexpgpu.tools import reference


def test_no_page_is_stale() -> None:
    assert reference.stale_pages(reference.pages()) == [], f"run `{reference.COMMAND}`"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    return tmp_path


def test_check_fails_where_a_page_is_stale_and_writes_nothing(root: Path) -> None:
    done = CliRunner().invoke(reference.main, ["--check"])
    assert done.exit_code == 1
    assert "docs/operations.md" in done.output
    assert list(root.iterdir()) == []


def test_check_passes_what_was_written(root: Path) -> None:
    assert CliRunner().invoke(reference.main, []).exit_code == 0
    assert CliRunner().invoke(reference.main, ["--check"]).exit_code == 0
    (root / "docs" / "errors.md").write_text("something else")
    assert CliRunner().invoke(reference.main, ["--check"]).exit_code == 1


@pytest.fixture(scope="module")
def operation_entries() -> dict[str, str]:
    page = reference.operations_page()
    return dict(entry.split("\n", 1) for entry in page.split("\n### ")[1:])


@pytest.mark.parametrize("operation", all_operations().values(), ids=lambda o: o.name)
def test_every_operation_is_documented(
    operation: Operation, operation_entries: dict[str, str]
) -> None:
    entry = operation_entries[operation.name]
    for part in (*operation.constraints, *operation.example):
        assert part in entry
    assert "__doc__" in vars(type(operation)), "a docstring of its own"
    meaning, onnx = entry.split("\n*ONNX*: ")
    assert meaning.strip()[-1] in ".`|)", "the meaning, after the dtypes"
    assert onnx.strip()


def test_every_error_is_documented() -> None:
    page = reference.errors_page()
    assert [line[3:] for line in page.split("\n") if line.startswith("## ")] == list(CODES)


def test_every_name_of_the_library_says_what_it_gives() -> None:
    rows = [line for line in reference.library_page().split("\n") if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if row.split(" | ")[-1].strip(" |") == ""] == []


def test_every_layer_has_its_comment() -> None:
    page = reference.layers_page()
    names = []
    for datum in prelude_data():
        assert isinstance(datum, ListDatum)
        names.append(write(datum.items[1]))
    entries = dict(entry.split("\n", 1) for entry in page.split("\n### ")[1:])
    assert list(entries) == names
    bare = [
        name
        for name, text in entries.items()
        if not text.split("```")[-1].split("It makes")[0].strip()
    ]
    assert bare == []
