"""Programs that are wrong in the ways people get them wrong, and what they are told."""

from __future__ import annotations

import pytest

from support.programs import place, report_error

HEAD = "(def record (fields :x (list f32 8) :t (list i32 4) :image (list f32 28 28 3)))\n"
PREPARE = "(defn prepare (r) (list :inputs (get r {})))\n"
NET = "(defmodel net ()\n  (parts {})\n  (apply (x)\n    {}))\n(def model (net))"


def net(parts: str, body: str, field: str = ":x") -> str:
    return HEAD + PREPARE.format(field) + NET.format(parts, body)


WRONG = [
    # names
    (net("l (lineer 8 4)", "(l x)"), "E-NAME-001", "lineer", "did you mean `linear`?"),
    (net("l (linear 8 4)", "(k x)"), "E-NAME-001", "k", "`k` is not defined"),
    (net("l (linear 8 4)", "(where (> x 0) x -x)"), "E-NAME-001", "-x", "`x` or `-`"),
    (net("", "(cat (list x x) 1)"), "E-NAME-001", "cat", "this library calls it `concat`"),
    (net("", "(expand-dims x 1)"), "E-NAME-001", "expand-dims", "calls it `unsqueeze`"),
    (net("", "(detach x)"), "E-NAME-001", "detach", "this library calls it `stop-gradient`"),
    (net("", "(sum x :dim 1)"), "E-CALL-003", ":dim", "did you mean `:axis`?"),
    (net("l (linear 8 4)", "(softmx x)"), "E-NAME-001", "softmx", "did you mean `softmax`?"),
    # calls
    (net("l (linear 8)", "(l x)"), "E-CALL-002", "(linear 8)", "(linear in out &key"),
    (net("l (linear 8 4 :biass 1)", "(l x)"), "E-CALL-003", ":biass", "`:bias`"),
    (net("l (linear 8 4)", "(l x x)"), "E-CALL-002", "x", "(linear x)"),
    (net("l (linear 8 4)", "(x l)"), "E-CALL-001", "x", "a tensor [batch, 8] f32"),
    (net("l (linear 8 4)", "(l (x))"), "E-CALL-001", "x", "what is called is no function"),
    (net("l linear", "(l x)"), "E-CALL-002", "(l x)", "(linear in out &key"),
    (net("l (linear 8 4)", "(+ l x)"), "E-TYPE-001", "l", "applied as `(f x)`"),
    (net("a (self-attention 8 2)", "(a x x)"), "E-CALL-002", "x", "`:mask …`"),
    (net("", "(concat x x 1)"), "E-TYPE-001", "1", "`:axis 1`"),
    (net("", "(stack x x 1)"), "E-TYPE-001", "1", "`:axis 1`"),
    (net("", "(layer-norm x)"), "E-TYPE-001", "(layer-norm x)", "call one of `parts`"),
    (net("", "(linear x 8 4)"), "E-CALL-002", "4", "`linear` makes a model"),
    (net("", "(dropout 0.5 x)"), "E-CALL-002", "x", "(dropout x rate"),
    (net("", "(cast x :f64)"), "E-TYPE-001", ":f64", "it is written `f64`"),
    (net("", '(cast x "f16")'), "E-TYPE-001", '"f16"', "one of `f32`, `f64`, `bf16`"),
    (net("w (param 8 4)", "(matmul x w)"), "E-CALL-002", "4", "`(list 8 4)`"),
    (net("w (param 8 (zeros))", "(* x w)"), "E-CALL-002", "(zeros)", "`:dtype …` or `:init …`"),
    # shapes
    (net("l (linear 9 4)", "(l x)"), "E-SHAPE-001", "(l x)", "[batch, 8] f32 and [9, 4] f32"),
    (net("n (layer-norm 7)", "(n x)"), "E-SHAPE-001", "(n x)", "expected: [8]"),
    (net("", "(reshape x (list 4 2))"), "E-SHAPE-001", "(reshape x (list 4 2))", "8*batch"),
    (net("", "(concat x (mean x))"), "E-SHAPE-001", "(concat x (mean x))", "[batch, 8] and []"),
    (net("", "(softmax x :axis 2)"), "E-VALUE-001", "(softmax x :axis 2)", "-2 to 1"),
    (net("a (self-attention 8 3)", "(a x)"), "E-ASSERT-001", "(self-attention 8 3)", "3 heads"),
    (net("a (self-attention 8 2)", "(a x)"), "E-ASSERT-001", "(a x)", "[batch, positions, width]"),
    (net("c (conv2d 3 8 3)", "(c x)", ":image"), "E-SHAPE-001", "(c x)", "28 channels"),
    # dtypes
    (net("", "(+ x (cast x i32))"), "E-DTYPE-001", "(+ x (cast x i32))", "(cast x f32)"),
    (net("l (linear 4 4)", "(l x)", ":t"), "E-DTYPE-001", "(l x)", "(cast x f32)"),
    (net("e (embedding 9 4)", "(e x)"), "E-DTYPE-002", "(e x)", "i32, i64"),
    (net("", "(where x x 0)"), "E-DTYPE-002", "(where x x 0)", "`condition` is [batch, 8] f32"),
    # control flow
    (net("", "(if (> x 0) x 0)"), "E-TENSOR-001", "(> x 0)", "(where test a b)"),
    (net("", "(for (i 8) (* i x))"), "E-TYPE-001", "8", "`(range n)`"),
    (net("", "(for (row x) row)"), "E-TYPE-001", "x", "`scan`"),
    # forms
    (net("(l (linear 8 4))", "(l x)"), "E-FORM-001", "(l (linear 8 4))", "this is no name"),
    (net("l (linear 8 4) k", "(l x)"), "E-FORM-001", "k", "the part `k` has no value"),
    (net("l 1 l 2", "x"), "E-NAME-002", "l", "the part `l` is named twice"),
    (net("", "(let ((y (relu x))) y)"), "E-FORM-001", "(y (relu x))", "no brackets of their own"),
    (net("", "(let (a 1 ((b c) (abs x)) d 3) b)"), "E-FORM-001", "((b c) (abs x))", "no brackets"),
    (HEAD + "(defmodel net () (parts) (apply x x))", "E-FORM-001", "x", "stands in brackets"),
    (HEAD + "(defmodel net () (parts) (forward (x) x))", "E-FORM-001", "(forward (x) x)", "apply"),
    (HEAD + "(def model (linear 8 4)))", "E-READ-002", ")", "closes nothing"),
    (HEAD + "(def model [linear 8 4))", "E-READ-003", ")", "closes a list that `[` opened"),
    # what the file defines
    (HEAD + "(def model (mlp 8 8 8 :activation :relu))" + PREPARE.format(":x"), "E-CALL-001",
     "model", "a keyword: :relu"),
    (HEAD + "(def model (linear 8 4))", "E-CALL-002", "model", "`model` is called with"),
    (net("", "x", ":y"), "E-VALUE-001", ":y", "one of :x :t :image"),
    (net("", "x", '"x"'), "E-TYPE-001", '"x"', "a keyword of a plist"),
    (net("", "x") + "(defrun :train record :step 3)", "E-RUN-001", ":step", "`:steps`"),
    (net("", "x") + "(defrun :train record :optimizer adam)", "E-RUN-001", "adam", "`(adam)`"),
    (net("", "x") + "(defrun :train record :optimizer (adam 1.0))", "E-CALL-002", "1.0",
     "`:lr …`"),
    (net("", "x") + "(defn loss (p r) (cross-entropy p (get r :y)))", "E-VALUE-001", ":y",
     "one of :inputs"),
    (net("", "x") + "(defn loss (p r) (* p p))", "E-MODEL-004", "loss", "reduce it with `mean`"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "under", "said"), WRONG)
def test_what_is_wrong_is_said_where_it_is(text: str, code: str, under: str, said: str) -> None:
    error = report_error(text, code)
    assert place(error)[2] == under
    shown = error.render()
    assert said in shown
    # Never a class of Python's, an address, or a traceback.
    for word in ("<class", "object at 0x", "Traceback", "NoneType"):
        assert word not in shown
