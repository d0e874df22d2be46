"""`param` and the initializers; what they refuse is in suite/tensors/models.sx."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.tensors import Initializer
from sexpgpu.schemas.errors import SexpgpuError, Source
from support.programs import program, program_error, session

HEAD = "(def record (fields :x (list f32 8)))\n(defn model (x) x)\n"


def test_what_a_parameter_declares() -> None:
    text = (
        '(def w (param (list 2 3) :dtype bf16 :load "w.npz" :key "a" :frozen true))\n'
        "(def b (param 4 :init (uniform -1 1)))"
    )
    found = program(HEAD + text).parameters()
    w, b = found["w"], found["b"]
    assert (w.type.dtype, w.type.shape, w.elements) == (DType.BF16, (2, 3), 6)
    assert (w.load, w.key, w.frozen) == ("w.npz", "a", True)
    assert (b.load, b.key, b.frozen) == (None, None, False)
    assert (b.init.name, b.init.arguments) == ("uniform", (-1.0, 1.0))
    assert w.span is not None
    assert (w.span.line, w.span.column) == (3, 8)
    assert w.value.name == "w"


def test_a_parameter_begins_normal_unless_it_says_how() -> None:
    for text in ("(param 4)", "(param 4 :init nil)"):
        init = program(HEAD + f"(def w {text})").parameters()["w"].init
        assert (init.name, init.arguments) == ("normal", (0.02,))


@pytest.mark.parametrize("text", ["(zeros)", "(ones)", "(glorot)", "(constant 2)"])
def test_initializers_are_values_that_parameters_share(text: str) -> None:
    found = program(HEAD + f"(def init {text})\n(def a (param 4 :init init))").parameters()
    assert isinstance(found["a"].init, Initializer)
    assert found["a"].init.show_value().startswith(text.split()[0].rstrip(")"))


def test_a_parameter_that_begins_as_a_tensor() -> None:
    """Whatever its path and the seed; each that shares the tensor has a value of its own."""
    text = HEAD + "(def t (log (cast (iota 3 :dtype i64) f64)))\n"
    text += "(def a (param 3 :dtype f64 :init t))\n(def b (param 3 :dtype f64 :init (+ t 1)))"
    found = program(text).parameters()
    assert found["a"].init.show_value() == "#<tensor [3] f64>"
    with np.errstate(divide="ignore"):
        expected = np.log(np.arange(3.0))
    for seed in (0, 1):
        np.testing.assert_array_equal(initial_value(found["a"], seed), expected)
        np.testing.assert_array_equal(initial_value(found["b"], seed), expected + 1)


def test_a_parameter_cannot_begin_as_what_an_input_says() -> None:
    text = "(def record (fields :x (list f32 8)))\n(def model (fn (x) (+ x (param 3 :init x))))"
    for init in ("(sum x :axis 0)", "(slice x :axis 1 :to 3)"):
        error = program_error(text.replace(":init x", f":init {init}"), "E-VALUE-001")
        assert error.message == "a parameter begins as a tensor that is not known yet"


@pytest.mark.parametrize("text", ["(param 1)", "(linear 1 1)", "(fields :x f32)", "(adam)"])
def test_very_many_of_them_take_all_steps_before_all_memory(text: str) -> None:
    evaluator, environment, _ = session()
    evaluator.steps_left = 200_000
    with pytest.raises(SexpgpuError) as caught:
        evaluator.run(Source("text", f"(for (i (range 5000)) {text})"), environment)
    assert caught.value.code == "E-LIMIT-002"
