"""What a checkpoint records of a program, and the program compiled again from it."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.program import Program, compile_program
from sexpgpu.export.language.recording import (
    moved_lines,
    producer,
    recall_knob,
    recompile,
    record,
    record_knob,
    record_model,
)
from sexpgpu.schemas.checkpoint import Checkpoint, SourceText, read_checkpoint, write_checkpoint
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import program

HEAD = "(def record (fields :x (list f32 8)))\n"
NET = HEAD + "(defknob dim 4)\n(defvariant wide :dim 6)\n(def model (linear 8 dim))\n"


def written(text: str, directory: Path, name: str = "main.sx") -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def refused(path: Path, document: Checkpoint, code: str) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        recompile(path, document, "/run/step-00000001")
    assert caught.value.code == code, caught.value.render()
    return caught.value


def test_a_record(tmp_path: Path) -> None:
    document = record(compile_program(written(NET, tmp_path), "wide"), 20)
    assert (document.step, document.slug, document.variant) == (20, "main-wide", "wide")
    assert document.knobs == {"dim": 6}
    assert document.precision == "f32"
    assert [(s.name, s.text) for s in document.sources] == [(str(tmp_path / "main.sx"), NET)]
    assert [(p.path, p.shape, p.dtype) for p in document.parameters] == [
        ("w", [8, 6], "f32"),
        ("b", [6], "f32"),
    ]
    assert document.producer == producer()
    assert producer().startswith("sexpgpu")


def test_every_load_is_recorded_with_its_files_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("w.npz", w=np.zeros((8, 4), np.float32))
    text = HEAD + (
        '(defmodel net () (parts w (param (list 8 4) :load "w.npz")\n'
        '  v (param (list 8 4) :load "w.npz" :key "w" :frozen true)) \n'
        "  (apply (x) (matmul x (+ w v))))\n(def model (net))"
    )
    compiled = program(text)
    document = record(compiled, 1)
    assert [(x.parameter, x.file, x.key, x.frozen) for x in document.loads] == [
        ("w", "w.npz", "w", False),
        ("v", "w.npz", "w", True),
    ]
    assert len(document.loads[0].sha256) == 64
    model = record_model(trace_alone(compiled), document)
    assert list(model.frozen) == ["v"]
    assert model.frozen["v"].sha256 == document.loads[0].sha256
    assert (model.checkpoint, model.step) == (None, None)
    assert record_model(trace_alone(compiled), document, "/run").step == 1


def test_a_load_whose_file_is_missing_cannot_be_recorded() -> None:
    compiled = program(HEAD + '(def w (param 8 :load "none.npz"))\n(defn model (x) (* x w))')
    with pytest.raises(SexpgpuError) as caught:
        record(compiled, 0)
    assert caught.value.code == "E-LOAD-001"


@pytest.mark.parametrize(
    "value",
    [
        1,
        2.5,
        True,
        None,
        "text",
        Keyword("gelu"),
        DType.BF16,
        math.inf,
        -math.inf,
        (1, (Keyword("a"), ("b", 2.0))),
        (),
    ],
)
def test_knobs_survive_a_checkpoint(value: object, tmp_path: Path) -> None:
    document = record(program(HEAD + "(def model (linear 8 4))"), 1)
    document = msgspec.structs.replace(document, knobs={"k": record_knob(value)})
    found = recall_knob(read_checkpoint(write_checkpoint(document), "here").knobs["k"])
    assert found == value
    assert type(found) is type(value)


def test_nan_survives_a_checkpoint() -> None:
    found = recall_knob(record_knob(math.nan))
    assert isinstance(found, float)
    assert math.isnan(found)


# Compiling again


def test_a_program_is_compiled_again_under_the_variant_and_knobs_of_its_record(
    tmp_path: Path,
) -> None:
    path = written(NET, tmp_path)
    document = record(compile_program(path, "wide", {"dim": 5}), 1)
    again = recompile(path, document, "/run")
    assert again.variant == "wide"
    assert again.parameters()["w"].type.shape == (8, 5)


def test_a_default_that_changed_does_not_count(tmp_path: Path) -> None:
    path = written(NET, tmp_path)
    document = record(compile_program(path), 1)
    path.write_text(NET.replace("dim 4", "dim 7"))
    assert recompile(path, document, "/run").parameters()["w"].type.shape == (8, 4)


def test_other_parameters_are_refused(tmp_path: Path) -> None:
    path = written(NET, tmp_path)
    document = record(compile_program(path), 1)
    path.write_text(NET.replace("(linear 8 dim)", "(linear 8 dim :transposed true :bias false)"))
    error = refused(path, document, "E-CKPT-005")
    assert error.message == f"the checkpoint's parameters are not those of {path}"
    assert error.place == "/run/step-00000001"
    assert error.notes == [
        "`w` is [8, 4] f32 in the checkpoint, [4, 8] f32 in the file",
        "`b` is [4] f32 in the checkpoint, not there in the file",
    ]


def test_many_differences_are_counted(tmp_path: Path) -> None:
    many = HEAD + (
        "(defmodel net () (parts ls (for (i (range 10)) (linear 8 8 :bias false)))\n"
        "  (apply (x) x))\n(def model (net))"
    )
    path = written(many, tmp_path)
    document = record(compile_program(path), 1)
    path.write_text(HEAD + "(def model (mlp 8 8 8))")
    error = refused(path, document, "E-CKPT-005")
    assert len(error.notes) == 9
    assert error.notes[-1] == "… 6 more"


def test_another_load_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("w.npz", w=np.zeros(8, np.float32), v=np.zeros(8, np.float32))
    text = HEAD + '(def w (param 8 :load "w.npz"))\n(defn model (x) (* x w))'
    path = written(text, tmp_path)
    document = record(compile_program(path), 1)
    path.write_text(text.replace('"w.npz"', '"w.npz" :key "v" :frozen true'))
    error = refused(path, document, "E-CKPT-005")
    assert error.notes == [
        "`w` is loaded from w.npz key w in the checkpoint, w.npz key v, frozen in the file"
    ]
    path.write_text(text.replace(' :load "w.npz"', ""))
    assert "nothing in the file" in refused(path, document, "E-CKPT-005").notes[0]


def test_a_knob_or_variant_that_the_file_has_no_longer(tmp_path: Path) -> None:
    path = written(NET, tmp_path)
    document = record(compile_program(path, "wide"), 1)
    path.write_text(NET.replace("(defknob dim 4)", "(def dim 6)").replace("(defv", "#;(defv"))
    error = refused(path, document, "E-KNOB-002")
    assert error.notes == ["the knobs and the variant are those that /run/step-00000001 records"]
    path.write_text(NET.replace("dim", "width"))
    assert refused(path, document, "E-KNOB-001").notes


# Lines that moved


def moved(before: list[tuple[str, str]], compiled: Program) -> list[str]:
    document = record(compiled, 1)
    sources = [SourceText(name, text) for name, text in before]
    return moved_lines(compiled, msgspec.structs.replace(document, sources=sources))


def test_lines_that_moved_are_numbered_before_and_after(tmp_path: Path) -> None:
    compiled = compile_program(written(NET, tmp_path))
    assert moved([("main.sx", NET)], compiled) == []
    assert moved([("/elsewhere/main.sx", NET.removesuffix("\n"))], compiled) == []
    lines = NET.split("\n")
    before = "\n".join([lines[0], "; a comment", *lines[1:3], "(def model (linear 8 3))", ""])
    assert moved([("/elsewhere/main.sx", before)], compiled) == [
        "main.sx:2: - ; a comment",
        "main.sx:5: - (def model (linear 8 3))",
        "main.sx:4: + (def model (linear 8 dim))",
    ]


def test_files_are_told_apart_by_their_place_below_the_program(tmp_path: Path) -> None:
    written("(def one 1)", tmp_path, "a/part.sx")
    written("(def two 2)", tmp_path, "b/part.sx")
    text = HEAD + '(include "a/part.sx")\n(include "b/part.sx")\n(def model (linear 8 4))'
    compiled = compile_program(written(text, tmp_path))
    before = [
        ("/old/main.sx", text),
        ("/old/a/part.sx", "(def one 1)"),
        ("/old/b/part.sx", "(def two 3)"),
    ]
    assert moved(before, compiled) == ["b/part.sx:1: - (def two 3)", "b/part.sx:1: + (def two 2)"]
    assert moved(before[:2], compiled) == ["b/part.sx:1: + (def two 2)"]
    gone = [*before[:2], ("/old/b/part.sx", "(def two 2)"), ("/old/c.sx", "(def c 1)")]
    assert moved(gone, compiled) == ["c.sx:1: - (def c 1)"]


def test_very_many_lines_are_counted(tmp_path: Path) -> None:
    compiled = compile_program(written(NET + "; new\n" * 3000, tmp_path))
    (line,) = moved([("main.sx", NET + "; old\n" * 4000)], compiled)
    assert line == "main.sx:5: 4,000 lines became 3,000 others"
