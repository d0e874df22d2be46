"""Programs of several files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.library import library
from sexpgpu.schemas.errors import SexpgpuError


def write(folder: Path, **files: str) -> Path:
    """Files by their names without `.sx`; the main one is `main`."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".sx")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "main.sx"


def run(path: Path) -> object:
    evaluator = Evaluator()
    return evaluator.run_file(path, evaluator.environment(library()))


def fail(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as raised:
        run(path)
    return raised.value


def test_included_definitions_are_the_programs_own(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='(include "layers.sx") (twice x)',
        layers="(def x 4) (defn twice (x) (* 2 x))",
    )
    assert run(main) == 8


def test_paths_are_relative_to_the_including_file(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='(do (include "parts/a.sx")) b',
        parts__a='(include "b.sx")',
        parts__b="(def b 5)",
        b="(def b 6)",
    )
    assert run(main) == 5


def test_a_file_is_included_once(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='(include "left.sx") (include "right.sx") (include "./base.sx") (+ left right)',
        left='(include "base.sx") (def left base)',
        right='(include "base.sx") (def right base)',
        base="(def base 1)",
    )
    assert run(main) == 2


def test_a_file_cannot_include_itself(tmp_path: Path) -> None:
    main = write(tmp_path, main='(include "a.sx")', a='(include "b.sx")', b='\n(include "a.sx")')
    error = fail(main)
    assert error.code == "E-INCLUDE-001"
    assert (str(error.span), error.came) == (
        f"{tmp_path}/b.sx:2:10",
        "a file cannot include itself",
    )
    assert error.notes == ["a.sx includes b.sx includes a.sx"]
    assert fail(write(tmp_path, main='(include "main.sx")')).code == "E-INCLUDE-001"


def test_files_include_each_other_to_a_limit(tmp_path: Path) -> None:
    files = {f"f{n}": f'(include "f{n + 1}.sx")' for n in range(60)}
    error = fail(write(tmp_path, main='(include "f0.sx")', **files))
    assert error.code == "E-INCLUDE-001"
    assert error.came == "files include each other 50 deep"


def test_a_missing_file_is_suggested(tmp_path: Path) -> None:
    error = fail(write(tmp_path, main='(include "layer.sx")', layers=""))
    assert error.code == "E-INCLUDE-001"
    assert error.came == "there is no such file"
    assert error.help == "did you mean `layers.sx`?"
    assert str(error.span).endswith("main.sx:1:10")


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sx")
    (tmp_path / "folder.sx").mkdir()
    for name in ("pipe.sx", "folder.sx", "/dev/zero", "a\\0b", "x" * 5000):
        error = fail(write(tmp_path, main=f'(include "{name}")'))
        assert error.code == "E-INCLUDE-001"


def test_the_limits_of_reading_hold_for_included_files(tmp_path: Path) -> None:
    (tmp_path / "big.sx").write_bytes(b"1 " * (3 * 2**20))
    assert fail(write(tmp_path, main='(include "big.sx")')).code == "E-READ-007"
    (tmp_path / "latin.sx").write_bytes("(def ü 1)".encode("latin-1"))
    error = fail(write(tmp_path, main='(include "latin.sx")'))
    assert (error.code, str(error.span)) == ("E-READ-009", f"{tmp_path}/latin.sx:1:6")


def test_names_clash_across_files(tmp_path: Path) -> None:
    error = fail(write(tmp_path, main='(def x 1)\n(include "a.sx")', a="(def x 2)"))
    assert error.code == "E-NAME-002"
    assert error.notes == [f"it is first defined at {tmp_path}/main.sx:1:6"]


def test_an_error_leaves_the_evaluator_usable(tmp_path: Path) -> None:
    main = write(tmp_path, main='(include "a.sx") a', a="(error 1)")
    evaluator = Evaluator()
    with pytest.raises(SexpgpuError):
        evaluator.run_file(main, evaluator.environment(library()))
    write(tmp_path, a="(def a 3)")
    assert evaluator.run_file(main, evaluator.environment(library())) == 3


def test_the_programs_own_file_must_be_there(tmp_path: Path) -> None:
    error = fail(tmp_path / "main.sx")
    assert (error.code, error.place) == ("E-FILE-001", f"{tmp_path}/main.sx")
