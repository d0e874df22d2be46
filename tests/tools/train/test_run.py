"""Runs: what they learn, what they leave, and that killing and resuming changes no bit."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.evaluate import evaluate_checkpoint
from support.training import LINE, contents, stop_after, train, write_line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the data and `line.sx`."""
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    write(LINE)
    return tmp_path


OTHER = "(defknob extra 1)\n(defvariant other :width 3)\n"
MODEL = "(def model (linear width 1))"
LOSS = "(list :loss (mean (* e e)) :worst (max (abs e)))"


def write(text: str, name: str = "line.sx", more: str = "") -> Path:
    path = Path(name)
    path.write_text(text.replace("{more}", more))
    return path


def weights(location: str, *, trained: bool = True) -> dict[str, np.ndarray]:
    found = open_checkpoint(location).weights(trained=trained)
    return {path: np.array(found.array(path)) for path in found.keys()}  # noqa: SIM118


def steps(location: str) -> list[str]:
    return sorted(name for name in os.listdir(location) if not name.endswith(".jsonl"))


def test_it_learns_and_leaves_checkpoints(folder: Path) -> None:
    outcome, shown = train(write(LINE), "run", steps=400)
    assert outcome.place == "run/step-00000400"
    assert outcome.metrics["loss"] < 1e-3
    assert outcome.evaluation["loss"] < 1e-3
    found = weights("run")
    assert np.allclose(found["w"][:, 0], [1, -2, 3], atol=0.05)
    assert np.allclose(found["b"], 0.5, atol=0.05)
    assert len(steps("run")) == 80
    checkpoint = open_checkpoint("run")
    checkpoint.verify()
    assert [file.name for file in checkpoint.document.files] == [
        "params.safetensors",
        "ema.safetensors",
        "optimizer.safetensors",
        "model.json",
    ]
    assert json.loads(checkpoint.model())["step"] == 400
    assert "400/400" in shown


def test_the_log_has_every_step_and_evaluation(folder: Path) -> None:
    train(write(LINE), "run")
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 21))
    assert [line["step"] for line in lines if line["kind"] == "evaluation"] == [5, 10, 15, 20]
    assert {"loss", "worst", "learning_rate"} <= lines[0].keys()


def test_the_same_run_gives_the_same_bits(folder: Path) -> None:
    for location in ("one", "two"):
        train(write(LINE), location)
    assert contents(folder / "one") == contents(folder / "two")
    train(write(LINE, more=":seed 1"), "three")
    assert contents(folder / "one") != contents(folder / "three")


@pytest.mark.parametrize("stops", [[3], [5], [1, 2, 3], [19]])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(folder: Path, stops: list[int]) -> None:
    train(write(LINE), "whole")
    for after in stops:
        outcome, _ = train(write(LINE), "parts", stop=stop_after(after))
    assert outcome.step == sum(stops)
    outcome, shown = train(write(LINE), "parts")
    assert outcome.step == 20
    assert f"going on after step {sum(stops)}" in shown
    whole, parts = (contents(folder / name) for name in ("whole", "parts"))
    last = "step-00000020"
    assert {k: v for k, v in whole.items() if last in k} == {
        k: v for k, v in parts.items() if last in k
    }
    log = Path("parts/metrics.jsonl").read_text()
    numbers = [int(n) for n in re.findall(r'"step":(\d+),"kind":"train"', log)]
    assert numbers == list(range(1, 21))


def test_a_run_that_is_over_is_over(folder: Path) -> None:
    train(write(LINE), "run")
    before = contents(folder / "run")
    outcome, _ = train(write(LINE), "run")
    assert outcome.step == 20
    assert contents(folder / "run") == before
    outcome, _ = train(write(LINE), "run", steps=22)
    assert outcome.place == "run/step-00000022"


def test_resume_needs_a_checkpoint(folder: Path) -> None:
    with pytest.raises(SexpgpuError) as caught:
        train(write(LINE), "run", "resume")
    assert caught.value.code == "E-CKPT-001"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"knobs": {"extra": 2}}, "knob extra: 1 before, 2 now"),
        ({"variant": "other"}, "variant: none before, other now"),
        ({"text": LINE.replace(":lr 0.1", ":lr 0.2")}, "line.sx"),
    ],
)
def test_another_run_is_not_gone_on_with(
    folder: Path, change: dict[str, object], note: str
) -> None:
    text = LINE + OTHER
    train(write(text), "run", stop=stop_after(5))
    before = contents(folder / "run")
    if "text" in change:
        text = str(change.pop("text")) + OTHER
    with pytest.raises(SexpgpuError) as caught:
        train(write(text), "run", **change)  # type: ignore[arg-type]
    assert caught.value.code == "E-RUN-003"
    assert any(note in line for line in caught.value.notes)
    assert contents(folder / "run") == before


def test_other_data_is_not_gone_on_with(folder: Path) -> None:
    train(write(LINE), "run", stop=stop_after(5))
    write_line(folder, records=63)
    with pytest.raises(SexpgpuError) as caught:
        train(write(LINE), "run")
    assert caught.value.code == "E-RUN-003"
    assert "data" in caught.value.message


def test_fresh_replaces_what_was_there(folder: Path) -> None:
    train(write(LINE), "run", stop=stop_after(12))
    assert steps("run") == ["step-00000005", "step-00000010", "step-00000012"]
    changed = write(LINE.replace(":lr 0.1", ":lr 0.2"))
    train(changed, "run", "fresh", stop=stop_after(5))
    assert steps("run") == ["step-00000005"]
    train(changed, "other", stop=stop_after(5))
    assert contents(folder / "run") == contents(folder / "other")


def test_old_steps_go_by_the_rule(folder: Path) -> None:
    train(write(LINE, more=":keep 2"), "run")
    assert steps("run") == ["step-00000015", "step-00000020"]


def test_two_runs_do_not_share_a_location(folder: Path) -> None:
    errors: list[str] = []

    def second() -> bool:
        with pytest.raises(SexpgpuError) as caught:
            train(write(LINE), "run")
        errors.append(caught.value.code)
        return True

    train(write(LINE), "run", stop=second)
    assert errors == ["E-RUN-004"]


def test_gradients_of_several_batches_are_those_of_a_larger_one(folder: Path) -> None:
    text = LINE.replace("(max (abs e))", "(mean e)")
    train(write(text), "one")
    parts = text.replace(":batch 16", ":batch 4 :accumulate 4")
    train(write(parts), "four")
    one, four = weights("one"), weights("four")
    for path in one:
        assert np.allclose(one[path], four[path], atol=1e-5)


@pytest.mark.parametrize("dtype", ["bf16", "f64"])
def test_parameters_of_other_dtypes(folder: Path, dtype: str) -> None:
    text = LINE.replace("(linear width 1)", "net").replace(
        "(def train",
        f"(def w (param (list 3 1) :dtype {dtype} :init (zeros)))\n"
        f"(defn net (x) (cast (matmul (cast x {dtype}) w) f32))\n(def train",
    )
    train(write(text), "whole")
    train(write(text), "parts", stop=stop_after(7))
    train(write(text), "parts")
    found = weights("whole")["w"]
    assert found.dtype == (np.float64 if dtype == "f64" else np.float32)
    assert np.abs(found).max() > 0.5
    last = "step-00000020/params.safetensors"
    assert contents(folder / "whole")[last] == contents(folder / "parts")[last]


def test_what_is_frozen_or_unread_stays_as_it_is(folder: Path) -> None:
    np.savez("given.npz", fixed=np.full((3, 3), 0.25, np.float32))
    net = """
(defmodel net ()
  (parts fixed (param (list 3 3) :load "given.npz" :frozen true)
         still (param 2 :init (ones) :frozen true)
         spare (param 2 :init (ones))
         out (linear 3 1))
  (apply (x) (out (+ x (* 0.0 (+ (sum still) (matmul x fixed)))))))
(def model (net))
"""
    decayed = "(adamw :lr 0.1 :weight-decay 0.5)"
    train(write(LINE.replace(MODEL, net).replace("(adam :lr 0.1)", decayed)), "run")
    found = weights("run")
    assert (found["fixed"] == 0.25).all()
    assert (found["still"] == 1).all()
    assert (found["spare"] == 1).all()
    stored = open_checkpoint("run").document
    assert [load.parameter for load in stored.loads] == ["fixed"]


def test_a_model_that_cannot_run_alone_trains(folder: Path) -> None:
    model = "(def l (linear width 1))\n(defn model (x) (list (l x) :kind))"
    train(write(LINE.replace(MODEL, model).replace("(squeeze p", "(squeeze (first p)")), "run")
    assert open_checkpoint("run").document.file("model.json") is None
    assert evaluate_checkpoint(Path("line.sx"), "run", trained=False, precisions=[]).step == 20


def test_counters_add_up_over_stops(folder: Path) -> None:
    counted = "(do (counter :steps 1) (counter :error (mean (abs e)))\n  " + LOSS + ")"
    text = LINE.replace(LOSS, counted)
    whole, _ = train(write(text), "whole")
    train(write(text), "run", stop=stop_after(7))
    outcome, _ = train(write(text), "run")
    assert outcome.metrics["steps"] == 20
    assert outcome.metrics["error"] == whole.metrics["error"]


# What goes wrong


def test_a_broken_guard_stops_the_run(folder: Path) -> None:
    guarded = "(do (guard :small (< (max (abs e)) 2.0))\n  " + LOSS + ")"
    with pytest.raises(SexpgpuError) as caught:
        train(write(LINE.replace(LOSS, guarded)), "run")
    error = caught.value
    assert error.code == "E-RUN-007"
    assert "the guard `small` is broken at step 1" in error.message
    assert error.span is not None
    assert "(guard :small" in error.span.source.line(error.span.line)
    assert steps("run") == []


def test_every_guard_of_a_name_is_looked_at(folder: Path) -> None:
    both = "(guard :held (> (max (abs e)) 0.0)) (guard :held (< (max (abs e)) 0.0)) "
    guarded = "(do " + both + LOSS + ")"
    with pytest.raises(SexpgpuError) as caught:
        train(write(LINE.replace(LOSS, guarded)), "run")
    assert caught.value.code == "E-RUN-007"
    assert "the guard `held.2`" in caught.value.message


def test_a_loss_that_is_not_finite_stops_the_run(folder: Path) -> None:
    text = LINE.replace("(mean (* e e))", "(mean (log (- 2.0 (* e e))))")
    with pytest.raises(SexpgpuError) as caught:
        train(write(text), "run")
    error = caught.value
    assert error.code == "E-RUN-006"
    assert "the loss is nan at step" in error.message
    assert error.came == "NaN, first made by `log`"
    assert error.place is not None
    assert error.place.startswith("line.sx:7:")
    assert steps("run") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(def record (fields :x f32))\n(def model (linear 1 1))", "says nowhere how"),
        (LINE.replace("(defn loss", "(defn lost"), "no `loss`"),
        (LINE.replace(MODEL, "(defn model (x) (mean x :axis 1 :keep true))"), "no parameter"),
    ],
)
def test_nothing_to_train(folder: Path, text: str, message: str) -> None:
    with pytest.raises(SexpgpuError) as caught:
        train(write(text), "run")
    assert caught.value.code == "E-RUN-005"
    assert message in caught.value.message


def test_missing_data_costs_no_checkpoint(folder: Path) -> None:
    declared = '"line.npz" :fields (list :x (list f32 3) :y f32))'
    program = write(LINE.replace('"line.npz")', declared))
    train(program, "run", stop=stop_after(5))
    before = contents(folder / "run")
    Path("line.npz").rename("elsewhere.npz")
    with pytest.raises(SexpgpuError) as caught:
        train(program, "run")
    assert caught.value.code.startswith("E-DATA")
    assert contents(folder / "run") == before
