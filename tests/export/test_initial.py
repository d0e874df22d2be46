"""A checkpoint before training: what it holds, and that it is a checkpoint like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.graph.document import read_model
from sexpgpu.export.initial import Written, write_initial
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.schemas.errors import SexpgpuError

NET = """
(def train (fields :x (list f32 8)))
(defknob dim 4)
(defmodel net ()
  (parts l (linear 8 dim) scale (param dim :dtype bf16 :init (ones)))
  (apply (x) (* (l x) (cast scale f32))))
(def model (net))
(defrun :train train :seed 7)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "net.sx"
    path.write_text(NET)
    return path


def write(path: Path, **options: object) -> Written:
    return write_initial(path, str(path.parent / "run"), **options)  # type: ignore[arg-type]


def test_the_checkpoint_holds_every_parameter_as_it_begins_and_the_model(path: Path) -> None:
    written = write(path)
    assert written.place == str(path.parent / "run" / "step-00000000")
    assert (written.parameters, written.bytes, written.obstacle) == (3, 36 * 4 + 4 * 2, None)
    stored = open_checkpoint(written.place)
    stored.verify()
    weights = stored.weights(trained=True)
    assert weights.keys() == ["l.w", "l.b", "scale"]
    for name, parameter in compile_program(path).parameters().items():
        begun = initial_value(parameter, 7)
        np.testing.assert_array_equal(weights.array(name), begun.astype(np.float32))
    model = read_model(stored.model(), "model.json")
    assert list(model.graph.weights) == ["l.w", "l.b", "scale"]
    assert model.checkpoint == written.place


def test_a_seed_given_comes_before_the_runs(path: Path) -> None:
    write(path)
    other = write(path, seed=8, step=1)
    assert other.place.endswith("step-00000001")
    first, second = (
        open_checkpoint(f"{path.parent}/run/step-0000000{i}").weights(trained=True).array("l.w")
        for i in (0, 1)
    )
    assert (first != second).any()


def test_variant_and_knobs_are_recorded(path: Path) -> None:
    path.write_text(NET + "(defvariant wide :dim 6)")
    document = open_checkpoint(write(path, variant="wide").place).document
    assert (document.variant, document.knobs) == ("wide", {"dim": 6})
    document = open_checkpoint(write(path, knobs={"dim": 5}, step=1).place).document
    assert document.parameters[0].shape == [8, 5]


def test_averages_are_there_where_the_run_keeps_them(path: Path) -> None:
    assert open_checkpoint(write(path).place).document.file("ema.safetensors") is None
    path.write_text(NET.replace(":seed 7", ":seed 7 :ema 0.9"))
    stored = open_checkpoint(write(path, step=1).place)
    assert stored.document.file("ema.safetensors") is not None
    np.testing.assert_array_equal(
        stored.weights(trained=False).array("l.w"), stored.weights(trained=True).array("l.w")
    )


def test_loaded_parameters_are_read_and_frozen_ones_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    array = np.arange(8, dtype=np.float32)
    np.savez("w.npz", w=array, v=array + 1)
    path.write_text(
        "(def record (fields :x (list f32 8)))\n"
        '(def w (param 8 :load "w.npz"))\n(def v (param 8 :load "w.npz" :frozen true))\n'
        "(defn model (x) (+ (* x w) v))"
    )
    written = write(path)
    assert (written.parameters, written.bytes) == (2, 32)
    stored = open_checkpoint(written.place)
    weights = stored.weights(trained=True)
    np.testing.assert_array_equal(weights.array("w"), array)
    np.testing.assert_array_equal(weights.array("v"), array + 1)
    np.savez("w.npz", w=array, v=array + 2)
    with pytest.raises(SexpgpuError) as caught:
        open_checkpoint(written.place).weights(trained=True).array("v")
    assert caught.value.code == "E-LOAD-001"


def test_a_model_that_cannot_run_alone_is_left_out(path: Path) -> None:
    path.write_text(NET.replace("(* (l x) (cast scale f32))", "(list (l x) l)"))
    written = write(path)
    assert written.obstacle is not None
    assert written.obstacle.code == "E-INFER-001"
    with pytest.raises(SexpgpuError) as caught:
        open_checkpoint(written.place).model()
    assert caught.value.code == "E-CKPT-004"


def test_what_is_wrong_with_the_program_writes_nothing(path: Path) -> None:
    path.write_text(NET.replace("(l x)", "(l l)"))
    with pytest.raises(SexpgpuError):
        write(path)
    assert not (path.parent / "run").exists()


def test_a_load_that_does_not_fit_writes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    np.savez("w.npz", w=np.zeros(7, np.float32))
    path.write_text(
        "(def record (fields :x (list f32 8)))\n"
        '(def w (param 8 :load "w.npz"))\n(defn model (x) (* x w))'
    )
    with pytest.raises(SexpgpuError) as caught:
        write(path)
    assert caught.value.code == "E-LOAD-003"
    assert not list((path.parent / "run").glob("step-*"))


def test_a_step_is_never_written_twice(path: Path) -> None:
    write(path)
    with pytest.raises(SexpgpuError) as caught:
        write(path)
    assert caught.value.code == "E-FILE-001"
