"""What is exported: a model with its weights, from a checkpoint, a program, or both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.graph.document import write_model
from sexpgpu.export.initial import write_initial
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.language.recording import producer, record, record_model, record_parameter
from sexpgpu.export.storage.checkpoint_writer import TensorSet, save_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.export.subject import (
    Subject,
    from_checkpoint,
    from_program,
    from_program_and_checkpoint,
)
from sexpgpu.schemas.errors import SexpgpuError

NET = """
(def record (fields :x (list f32 8)))
(defknob dim 4)
(defmodel net () (parts l (linear 8 dim) unused (linear 2 2)) (apply (x) (l x)))
(def model (net))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "net.sx"
    path.write_text(NET)
    return path


@pytest.fixture
def run(path: Path) -> str:
    where = str(path.parent / "run")
    write_initial(path, where, knobs={"dim": 3}, step=20)
    return where


def error_of(code: str, make: object, *arguments: object, **options: object) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        make(*arguments, **options)  # type: ignore[operator]
    assert caught.value.code == code, caught.value.render()
    return caught.value


def check(subject: Subject, run: str) -> None:
    assert subject.origin == f"{run}/step-00000020"
    model = subject.model
    assert (model.checkpoint, model.step, model.slug) == (subject.origin, 20, "net")
    assert list(model.graph.weights) == ["l.w", "l.b"]
    assert subject.read("l.w").shape == (8, 3)


def test_from_a_checkpoint_alone(run: str) -> None:
    check(from_checkpoint(run, trained=False), run)
    check(from_checkpoint(f"{run}/step-00000020", trained=True), run)


def test_a_checkpoint_that_was_moved_knows_its_new_place(run: str, tmp_path: Path) -> None:
    Path(run).rename(tmp_path / "moved")
    check(from_checkpoint(str(tmp_path / "moved"), trained=False), str(tmp_path / "moved"))


def test_from_a_program_under_the_knobs_of_a_checkpoint(path: Path, run: str) -> None:
    subject = from_program_and_checkpoint(path, run, trained=False)
    check(subject, run)
    assert subject.moved == []
    path.write_text(NET + "; a comment\n")
    assert from_program_and_checkpoint(path, run, trained=False).moved == [
        "net.sx:6: + ; a comment"
    ]


def test_from_another_program_than_the_checkpoints(path: Path, run: str) -> None:
    path.write_text(NET.replace("(linear 8 dim)", "(linear 8 dim :bias false)"))
    error = error_of("E-CKPT-005", from_program_and_checkpoint, path, run, trained=False)
    assert error.notes == ["`l.b` is [3] f32 in the checkpoint, not there in the file"]


def test_a_program_that_cannot_run_alone(path: Path, run: str) -> None:
    path.write_text(NET.replace("(apply (x) (l x))", "(apply (x) (list (l x) l))"))
    error_of("E-INFER-001", from_program_and_checkpoint, path, run, trained=False)


def test_a_checkpoint_without_a_model(path: Path) -> None:
    path.write_text(NET.replace("(apply (x) (l x))", "(apply (x) (list (l x) l))"))
    where = str(path.parent / "other")
    write_initial(path, where)
    error_of("E-CKPT-004", from_checkpoint, where, trained=False)
    path.write_text(NET)
    assert from_program_and_checkpoint(path, where, trained=False).read("l.b").shape == (4,)


def test_trained_weights_are_not_their_averages(path: Path, tmp_path: Path) -> None:
    path.write_text(NET + "(defrun :train record :ema 0.9)")
    where = str(tmp_path / "averaged")
    write_initial(path, where)
    for trained in (False, True):
        np.testing.assert_array_equal(
            from_checkpoint(where, trained=trained).read("l.b"), np.zeros(4, np.float32)
        )


def test_from_a_program_whose_every_parameter_is_loaded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    w = np.arange(8, dtype=np.float32)
    np.savez("w.npz", w=w)
    path.write_text(
        "(def record (fields :x (list f32 8)))\n(def unused (param 3))\n"
        '(def w (param 8 :load "w.npz"))\n(defn model (x) (* x w))'
    )
    subject = from_program(path)
    assert subject.origin == str(path)
    assert (subject.model.checkpoint, subject.model.step) == (None, None)
    np.testing.assert_array_equal(subject.read("w"), w)


def test_from_a_program_with_parameters_that_have_no_values(path: Path) -> None:
    error = error_of("E-EXPORT-004", from_program, path)
    assert error.message == "2 parameters have no values"
    assert error.came == "`l.w`, `l.b`"
    assert error.place == str(path)
    path.write_text(NET.replace("(linear 8 dim)", "(linear 8 dim :bias false)"))
    assert error_of("E-EXPORT-004", from_program, path).message == "a parameter has no values"
    layers = "(for (i (range 8)) (linear 8 8 :bias false))"
    path.write_text(
        NET.replace("(linear 8 dim)", layers).replace("(l x)", "(fold (fn (x m) (m x)) x l)")
    )
    error = error_of("E-EXPORT-004", from_program, path)
    assert error.came is not None
    assert error.came.endswith("`l.5.w` and 2 more")


def test_a_load_that_does_not_fit_is_refused_before_anything_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    np.savez("w.npz", w=np.zeros((2, 4), np.float32))
    path.write_text(
        "(def record (fields :x (list f32 8)))\n"
        '(def w (param 8 :load "w.npz"))\n(defn model (x) (* x w))'
    )
    error = error_of("E-LOAD-003", from_program, path)
    assert error.notes == [f"it is to be the parameter `w` of {path}"]
    path.write_text(path.read_text().replace('"w.npz"', '"w.npz" :key "v"'))
    error_of("E-LOAD-002", from_program, path)


def test_a_checkpoint_whose_model_is_not_that_of_its_weights(path: Path) -> None:
    """As a faulty writer would leave it: each file whole, and one that speaks of another's."""
    program = compile_program(path)
    parameters = program.parameters()
    tensors = TensorSet(
        [record_parameter(name, p) for name, p in parameters.items()],
        lambda name: initial_value(parameters[name], 0),
    )
    others = {
        NET.replace("(linear 8 dim)", "(linear 8 5)"): "[8, 4] f32",
        NET.replace("(parts l", "(parts k").replace("(l x)", "(k x)"): "no such parameter",
    }
    for number, (text, came) in enumerate(others.items()):
        path.write_text(text)
        other = compile_program(path)
        model = write_model(record_model(trace_alone(other), record(other, 0)), producer())
        where = Location.parse(str(path.parent / f"run-{number}"))
        save_checkpoint(where, record(program, 0), tensors, model=model)
        assert error_of("E-CKPT-005", from_checkpoint, str(where), trained=False).came == came
