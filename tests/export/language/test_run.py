"""`defrun`: what a run says, and every key it takes."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.recipes import Recipe
from sexpgpu.export.language.run import KEYS, Run
from support.programs import place, program, program_error

HEAD = "(def train (fields :x (list f32 8)))\n(defn model (x) x)\n"


def run(text: str) -> Run:
    found = program(HEAD + text).run
    assert found is not None
    return found


def test_a_program_may_have_no_run() -> None:
    assert program(HEAD).run is None


def test_what_a_run_says_by_default() -> None:
    found = run("(defrun :train train)")
    assert found.train.kind == "fields"
    assert (found.steps, found.batch, found.seed, found.accumulate) == (1000, 32, 0, 1)
    assert found.optimizer.name == "adamw"
    assert found.optimizer.options["weight-decay"] == 0.01
    assert found.precision == "f32"
    for name in ("eval", "schedule", "clip", "ema", "checkpoint_every", "evaluate_every", "keep"):
        assert getattr(found, name) is None


def test_every_key() -> None:
    found = run(
        "(defrun :train train :eval (fields :x (list f32 8)) :steps 20 :batch 8\n"
        "  :optimizer (sgd :lr 0.1) :schedule (cosine :warm-up 5) :clip 1.5 :ema 0.99\n"
        "  :precision bf16 :seed 7 :checkpoint-every 10 :evaluate-every 5 :evaluate-batches 2\n"
        "  :accumulate 4 :keep 3)"
    )
    assert found.eval is not None
    assert (found.steps, found.batch, found.seed, found.accumulate) == (20, 8, 7, 4)
    assert (found.optimizer.name, found.optimizer.options["lr"]) == ("sgd", 0.1)
    assert found.schedule is not None
    assert found.schedule.name == "cosine"
    assert found.clip == Recipe("clipping", "clip-norm", {"norm": 1.5})
    assert (found.ema, found.precision, found.keep) == (0.99, "bf16", 3)
    assert (found.checkpoint_every, found.evaluate_every, found.evaluate_batches) == (10, 5, 2)
    assert all(getattr(found, key.replace("-", "_")) is not None for key in KEYS)


@pytest.mark.parametrize("precision", ["bf16", ":bf16"])
def test_a_precision_is_a_dtype_or_a_keyword(precision: str) -> None:
    assert run(f"(defrun :train train :precision {precision})").precision == "bf16"


def test_nil_is_as_if_it_were_left_out() -> None:
    found = run("(defrun :train train :ema nil :clip nil :schedule nil :steps nil :eval nil)")
    assert (found.ema, found.clip, found.schedule, found.steps) == (None, None, None, 1000)


@pytest.mark.parametrize(
    ("items", "under", "expected"),
    [
        (":train 3", "3", "a loader"),
        (":train train :eval model", "model", "a loader"),
        (":train train :steps 0", "0", "at least 1"),
        (":train train :steps 1.5", "1.5", "a whole number"),
        (":train train :steps true", "true", "a whole number"),
        (":train train :batch -1", "-1", "at least 1"),
        (":train train :seed -1", "-1", "at least 0"),
        (":train train :optimizer adam", "adam", "an optimizer: (sgd …), (momentum …)"),
        (":train train :optimizer (cosine)", "(cosine)", "an optimizer"),
        (":train train :schedule (adam)", "(adam)", "a schedule: (constant-schedule …)"),
        (":train train :clip 0", "0", "a norm above 0"),
        (":train train :clip true", "true", "a norm above 0"),
        (":train train :clip (adam)", "(adam)", "(clip-norm 1.0)"),
        (":train train :ema 1", "1", "from 0 up to 1"),
        (":train train :ema -0.5", "-0.5", "from 0 up to 1"),
        (":train train :precision f64", "f64", "f32 or bf16"),
        (':train train :precision "f16"', '"f16"', "f32 or bf16"),
        (":train train :keep 0", "0", "at least 1"),
        (":train train :checkpoint-every 0", "0", "at least 1"),
    ],
)
def test_a_value_that_a_key_does_not_take(items: str, under: str, expected: str) -> None:
    error = program_error(HEAD + f"(defrun {items})", "E-RUN-001")
    assert place(error)[::2] == (3, under)
    assert error.expected is not None
    assert expected in error.expected
    assert error.came is not None


def test_a_recipe_that_was_not_called() -> None:
    error = program_error(HEAD + "(defrun :train train :optimizer adam)", "E-RUN-001")
    assert error.came == "a function: #<function adam>"
    assert error.help == "call it: `(adam)`"


def test_a_key_that_a_run_has_not() -> None:
    error = program_error(HEAD + "(defrun :train train :step 3)", "E-RUN-001")
    assert place(error) == (3, 22, ":step")
    assert error.help == "did you mean `:steps`?"
    assert error.expected is not None
    assert ":evaluate-every" in error.expected


def test_a_run_without_records() -> None:
    error = program_error(HEAD + "(defrun :steps 3)", "E-RUN-001")
    assert error.message == "`defrun` needs `:train`, a loader"
    assert place(error)[2] == "(defrun :steps 3)"


@pytest.mark.parametrize(
    ("items", "under"),
    [
        ("train", "train"),
        (":train", ":train"),
        (":train train 3 4", "3"),
        (":train train :train train", ":train"),
    ],
)
def test_malformed(items: str, under: str) -> None:
    error = program_error(HEAD + f"(defrun {items})", "E-FORM-001")
    assert place(error)[2] == under
    assert error.expected is not None
    assert error.expected.startswith("(defrun :train train")


def test_errors_in_values_are_their_own() -> None:
    error = program_error(HEAD + "(defrun :train train :optimizer (adam :lrr 1))", "E-CALL-003")
    assert place(error)[2] == ":lrr"
