"""What `check` finds out: types, the tree of parameters, and whether records stay apart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sexpgpu.export.graph.document import write_model
from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.language.recording import record, record_model
from sexpgpu.export.language.report import plain_value, report_on
from support.programs import GPT, report, report_error

HEAD = "(def record (fields :x (list f32 8)))\n"

#: The shape of Llama 2 7B.
LLAMA = """
(defknob dim 4096) (defknob depth 32) (defknob heads 32) (defknob hidden 11008)
(defknob vocab 32000) (defknob window 2048)
(def train (fields :tokens (list i32 (+ 1 window))))
(defmodel block ()
  (parts norm-1 (rms-norm dim)
         attention (self-attention dim heads :causal true :rotary true :bias false)
         norm-2 (rms-norm dim)
         mlp (swiglu dim hidden))
  (apply (x)
    (let (x (+ x (attention (norm-1 x))))
      (+ x (mlp (norm-2 x))))))
(defmodel llama ()
  (parts embed (embedding vocab dim)
         blocks (for (i (range depth)) (block))
         norm (rms-norm dim)
         head (linear dim vocab :bias false))
  (apply (t) (head (norm (fold (fn (x b) (b x)) (embed t) blocks)))))
(def model (llama))
(defn prepare (r)
  (let (t (get r :tokens))
    (list :inputs (slice t :axis 1 :to window) :targets (slice t :axis 1 :from 1))))
(defn loss (p r) (mean (cross-entropy p (get r :targets))))
(defrun :train train)
"""


def test_a_report() -> None:
    found = report(GPT + "(defn loss (p r) (mean p))")
    assert {n: str(t) for n, t in found.inputs.items()} == {"inputs": "[batch, 12] i32"}
    assert {n: str(t) for n, t in found.outputs.items()} == {"output": "[batch, 12, 40] f32"}
    assert found.parameter_count == sum(p.elements for p in found.parameters.values())
    assert found.parameter_bytes == 4 * found.parameter_count
    assert (found.trains, found.metrics, found.obstacle) == (True, ["loss"], None)
    assert found.independence is not None
    assert found.independence.independent
    assert found.knob_values() == {"window": 12, "dim": 16, "depth": 2}
    assert found.knobs_shown() == {"window": "12", "dim": "16", "depth": "2"}


def test_the_tree_has_a_line_for_each_part_and_parameter() -> None:
    found = report(
        HEAD + "(defmodel net () (parts l (linear 8 4)\n"
        "  more (list (param 2 :frozen true) (linear 4 2 :bias false))\n"
        '  w (param (list 2 3) :dtype bf16 :load "w.npz")) (apply (x) (l x)))\n'
        "(def model (net))"
    )
    assert found.tree() == [
        "    l      36",
        "      w    32  [8, 4] f32",
        "      b    4  [4] f32",
        "    more   10",
        "      0    2  [2] f32 frozen",
        "      1    8",
        "        w  8  [4, 2] f32",
        "    w      6  [2, 3] bf16 from w.npz",
    ]


def test_records_that_meet_are_told_with_the_operation_that_lets_them() -> None:
    text = HEAD + "(defn model (x)\n  (- x (mean x :axis 0 :keep true)))"
    verdict = report(text).independence
    assert verdict is not None
    assert not verdict.independent
    assert verdict.node is not None
    assert verdict.node.operation.name == "mean"
    assert verdict.node.position is not None
    assert (verdict.node.position.line, verdict.node.position.column) == (3, 8)


def test_a_model_that_cannot_run_alone_has_no_inputs() -> None:
    found = report(HEAD + "(defn model (x) (list x :key))")
    assert found.obstacle is not None
    assert found.obstacle.code == "E-INFER-001"
    assert (found.inputs, found.outputs, found.independence) == ({}, {}, None)


def test_what_is_wrong_in_training_alone_is_an_error() -> None:
    report_error(HEAD + "(def model (linear 8 4))\n(defn loss (p r) p)", "E-MODEL-004")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1, 1),
        (Keyword("gelu"), ":gelu"),
        ((1, (2.5, "a")), [1, [2.5, "a"]]),
        (float("inf"), "inf"),
        (None, None),
        (True, True),
        (DType.F32, "f32"),
    ],
)
def test_knobs_as_plain_data(value: object, plain: object) -> None:
    assert plain_value(value) == plain


def test_llama_7b_is_compiled_to_model_json_in_time(tmp_path: Path) -> None:
    path = tmp_path / "llama.sx"
    path.write_text(LLAMA)
    compile_program(path)
    started = time.process_time()
    program = compile_program(path)
    alone = trace_alone(program)
    document = write_model(record_model(alone, record(program, 0)), "sexpgpu")
    assert time.process_time() - started < 3
    assert len(alone.graph.nodes) > 700
    assert len(document) > 100_000


def test_llama_7b_is_checked_in_time(tmp_path: Path) -> None:
    path = tmp_path / "llama.sx"
    path.write_text(LLAMA)
    report_on(path, None, {"depth": 1})
    started = time.process_time()
    found = report_on(path, None, {})
    assert time.process_time() - started < 3
    assert found.parameter_count == 6_738_415_616
    assert found.independence is not None
    assert found.independence.independent
