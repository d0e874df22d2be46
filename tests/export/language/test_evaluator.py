"""The evaluator's hooks and limits; what programs mean is in suite/*.sx."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.language.data import ListDatum, Symbol
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.evaluator import Evaluator, Limits
from sexpgpu.export.language.library import library
from sexpgpu.export.language.reader import read
from sexpgpu.export.language.signature import signature_of
from sexpgpu.export.language.values import Builtin, Call
from sexpgpu.schemas.errors import SexpgpuError, Source, Span

SMALL = Limits(calls=200, steps=50_000, elements=10_000, characters=10_000)


class Tensor:
    is_tensor = True

    def describe_value(self) -> str:
        return "a tensor"

    def show_value(self) -> str:
        return "#<tensor [b, 3] f32>"


class Scaler:
    """A value that can be called, as a model can."""

    call_name = "scaler"
    signature = signature_of("(x &key (by 2))")

    def call(
        self,
        evaluator: Evaluator,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        span: Span | None,
    ) -> object:
        times = evaluator.environment(library()).lookup(Symbol("*"))
        return evaluator.apply(times, [positional[0], keywords.get("by", 2)], span=span)


def run(
    text: str,
    names: Mapping[str, object] | None = None,
    limits: Limits | None = None,
    evaluator: Evaluator | None = None,
) -> object:
    evaluator = evaluator or Evaluator(limits=limits)
    environment = evaluator.environment({**library(), **(names or {})})
    return evaluator.run(Source("t.sx", text), environment)


def fail(text: str, names: Mapping[str, object] | None = None, **options: Limits) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as raised:
        run(text, names, **options)
    return raised.value


def underlined(error: SexpgpuError) -> str:
    span = error.span
    assert span is not None
    return span.source.line(span.line)[span.column - 1 : span.column - 1 + span.width]


def test_a_program_has_the_value_of_its_last_form() -> None:
    assert run("(def x 1) (+ x 1)") == 2
    assert run("; nothing") is None


@pytest.mark.parametrize(
    ("text", "guilty"),
    [
        ("(list (+ 1 2) (+ 1 missing))", "missing"),
        ('(list (+ 1 2) (+ 1 "a"))', '"a"'),
        ("(nth (list 1 2) (+ 1 1))", "(+ 1 1)"),
        ("(let (x 3) (x 1))", "x"),
        ("(first 1 2)", "2"),
        ("(list (first))", "(first)"),
        ("(defn f (x &key y) x) (f 1 :z 2)", ":z"),
        ('(assert (= 1 2) "no")', "(= 1 2)"),
        ("(let (x 1) (if x))", "(if x)"),
        ("(let (x 1 2 3) x)", "2"),
        ("(let ((a b) 3) a)", "(a b)"),
        ("(for (i (len (list))) i)", "(len (list))"),
        ("(list 1 ())", "()"),
        ("(get (list :a 1) :b)", ":b"),
        ("(map (fn (x) (* x nil)) (list 1))", "nil"),
        ("(/ 1 2 0)", "0"),
    ],
)
def test_an_error_stands_at_the_guilty_datum(text: str, guilty: str) -> None:
    assert underlined(fail(text)) == guilty


def test_the_call_stack_is_innermost_first() -> None:
    text = "(defn f (x) (+ x nil))\n(defn g (x)\n  (f x))\n(map g (list 1))"
    frames = fail(text).frames
    assert [(frame.name, str(frame.span)) for frame in frames] == [
        ("f", "t.sx:3:3"),
        ("g", "t.sx:4:6"),
    ]


@pytest.mark.parametrize(
    ("text", "form", "advice"),
    [
        ("(if t 1 2)", "`if`", "`(where test a b)`"),
        ("(cond (t 1))", "`cond`", "`scan`"),
        ("(and t true)", "`and`", "`logical-and`"),
        ("(and true t)", "`and`", "`logical-and`"),
        ("(or t true)", "`or`", "`logical-or`"),
        ("(not t)", "`not`", "`logical-not`"),
        ("(assert t)", "`assert`", "`guard`"),
        ("(filter (fn (x) t) (list 1))", "`filter`", "`where"),
    ],
)
def test_control_flow_on_a_tensor_names_what_to_write(text: str, form: str, advice: str) -> None:
    error = fail(text, {"t": Tensor()})
    assert error.code == "E-TENSOR-001"
    assert form in error.message
    assert error.help is not None
    assert advice in error.help or advice.strip("`") in error.help
    assert "where" in error.help
    assert "scan" in error.help
    assert error.came == "a tensor: #<tensor [b, 3] f32>"


def test_a_tensor_is_no_list() -> None:
    for text in ("(map abs t)", "(for (i t) i)", "(first t)"):
        error = fail(text, {"t": Tensor()})
        assert error.code == "E-TYPE-001"
        assert error.help is not None
        assert "scan" in error.help
    assert run("(list (tensor? t) (tensor? 1) (= t t) (= t 1))", {"t": Tensor()}) == (
        True,
        False,
        True,
        False,
    )


def test_any_value_with_call_can_be_called() -> None:
    names = {"s": Scaler()}
    assert run("(list (s 3) (s 3 :by 5) (apply s (list 3 :by 4)) (function? s))", names) == (
        6,
        15,
        12,
        True,
    )
    assert run("(map s (list 1 2))", names) == (2, 4)
    error = fail("(defn f () (s nil)) (f)", names)
    assert error.code == "E-TYPE-001"
    assert [frame.name for frame in error.frames] == ["scaler", "f"]
    assert fail("(s)", names).code == "E-CALL-002"
    assert fail("(s 1 :bye 2)", names).code == "E-CALL-003"


def test_a_call_without_signature_gets_keywords_from_the_first_on() -> None:
    class Anything:
        call_name = "anything"

        def call(
            self, evaluator: object, positional: object, keywords: object, span: object
        ) -> object:
            return (tuple(positional), tuple(keywords.items()))  # type: ignore[attr-defined, call-overload]

    assert run("(a 1 :k 2)", {"a": Anything()}) == ((1,), (("k", 2),))


def test_a_builtin_gets_the_spans_of_its_arguments() -> None:
    seen: list[Call] = []

    def note(call: Call, positional: Sequence[object], keywords: Mapping[str, object]) -> object:
        seen.append(call)
        return (tuple(positional), dict(keywords))

    names = {"note": Builtin("note", "(x &rest more &key k l)", note)}
    assert run("(note 1 (+ 1 1) :l 3)", names) == ((1, 2), {"l": 3})
    (call,) = seen
    assert (call.name, str(call.span)) == ("note", "t.sx:1:1")
    assert [str(span) for span in call.argument_spans] == ["t.sx:1:7", "t.sx:1:9"]
    assert str(call.span_of("l")) == "t.sx:1:20"


def test_an_error_without_a_place_gets_that_of_the_call() -> None:
    def refuse(call: Call, positional: object, keywords: object) -> object:
        raise SexpgpuError("E-SHAPE-001", "shapes do not fit")

    error = fail("(list 1 (refuse))", {"refuse": Builtin("refuse", "()", refuse)})
    assert underlined(error) == "(refuse)"


def test_a_call_site_serves_callees_in_turn() -> None:
    # The argument calls through the same site with another callee, before the outer call is made.
    text = """
    (defn through (f n) (f (if (= n 0) 1 (through (if (= n 1) abs floor) (- n 1)))))
    (list (through neg 2) (map (fn (f) (f 4)) (list abs sqrt (fn (x) x) neg)))
    """
    assert run(text) == (-1, (4, 2.0, 4, -4))
    error = fail(text.replace("(if (= n 0) 1", "(if (= n 0) nil"))
    assert error.message == "`abs` cannot take nil"


def test_special_forms_are_plugged_in_at_the_top_level() -> None:
    def defknob(evaluator: Evaluator, datum: ListDatum, environment: Environment) -> object:
        name = datum.items[1]
        assert isinstance(name, Symbol)
        value = evaluator.evaluate(datum.items[2], environment)
        environment.define(name, value)
        return value

    def go(text: str) -> object:
        return run(text, evaluator=Evaluator({"defknob": defknob}))

    assert go("(defknob dim (* 2 4)) (do (defknob heads 2)) (list dim heads)") == (8, 2)
    with pytest.raises(SexpgpuError) as raised:
        go("(let () (defknob dim 1))")
    assert raised.value.code == "E-FORM-001"
    assert "top level only" in raised.value.message
    with pytest.raises(SexpgpuError) as raised:
        go("(def defknob 1)")
    assert raised.value.code == "E-FORM-001"
    with pytest.raises(SexpgpuError) as raised:
        go("(defknbo dim 1)")
    assert raised.value.help == "did you mean `defknob`?"


def test_what_is_evaluated_again_is_compiled_once() -> None:
    evaluator = Evaluator()
    environment = evaluator.environment(library())
    (datum,) = read("(let (y (* x x)) (fn () y))", "t.sx")
    first = evaluator.evaluate(datum, environment.child({"x": 2}))
    second = evaluator.evaluate(datum, environment.child({"x": 3}))
    assert first.code is second.code
    assert (evaluator.apply(first, []), evaluator.apply(second, [])) == (4, 9)


def test_functions_are_made_of_data() -> None:
    evaluator = Evaluator()
    environment = evaluator.environment(library()).child({"k": 10})
    parameters = evaluator.parameters(read("(x &key (y k))", "t.sx")[0], environment)
    function = evaluator.function("f", parameters, read("(list) (+ x y)", "t.sx"), environment)
    assert evaluator.apply(function, [1]) == 11
    assert evaluator.apply(function, [1], {"y": 2}) == 3


def test_apply_refuses_what_cannot_be_called() -> None:
    for value in (3, "f", None, (1,), Tensor()):
        with pytest.raises(SexpgpuError) as raised:
            Evaluator().apply(value, [])
        assert raised.value.code == "E-CALL-001"


def test_an_evaluator_can_be_used_after_an_error() -> None:
    evaluator = Evaluator()
    environment = evaluator.environment(library())
    before = sys.getrecursionlimit()
    for _ in range(3):
        with pytest.raises(SexpgpuError):
            evaluator.run(Source("t.sx", "(let (f (fn (f) (f f))) (f f))"), environment)
        assert evaluator.depth == 0
        assert sys.getrecursionlimit() == before
    assert evaluator.run(Source("t.sx", "(+ 1 2)"), environment) == 3


def nested(opening: str, closing: str, levels: int) -> str:
    """A function that calls itself inside so many lists."""
    return f"(defn f (n) (if (= n 0) 0 {opening * levels}(f (- n 1)){closing * levels}))"


@pytest.mark.parametrize(
    ("opening", "closing", "levels"),
    [
        ("(identity ", ")", 190),
        ("(do 1 ", ")", 190),
        ("(let (a 1) ", ")", 190),
        ("(first (map identity (list ", ")))", 60),
        ("(fold (fn (a b) b) 0 (list ", "))", 90),
        ("(first (for (i (list 1)) ", "))", 90),
        ("(cond (else ", "))", 90),
        ("(apply identity (list ", "))", 90),
        ("(+ 1 2 3 4 ", ")", 190),
    ],
)
def test_recursion_ends_in_an_error_whatever_it_goes_through(
    opening: str, closing: str, levels: int
) -> None:
    for depth in (levels, 1):
        error = fail(nested(opening, closing, depth) + "(f 1000000)")
        assert error.code == "E-LIMIT-001"
        assert error.span is not None


def test_a_thousand_calls_go_through_ordinary_code() -> None:
    text = """
    (defn f (n)
      (let (a (list n) b (+ n 1))
        (cond ((= n 0) 0)
              (else (if (> b 0)
                      (fold (fn (total x) (+ total (first (map (fn (y) (f (- y 1))) a)))) 1 a)
                      nil)))))
    (f 330)
    """
    assert run(text) == 330


def test_an_exponential_program_runs_out_of_steps() -> None:
    error = fail("(defn f (n) (if (= n 0) 0 (do (f (- n 1)) (f (- n 1))))) (f 100)", limits=SMALL)
    assert error.code == "E-LIMIT-002"
    assert "50,000 steps" in error.message


@pytest.mark.parametrize(
    "body",
    [
        "(for (j xs) 1)",
        "(map abs xs)",
        "(fold + 0 xs)",
        "(filter number? xs)",
        "(every? number? xs)",
        "(reverse xs)",
        "(rest xs)",
        "(append xs 1)",
        "(concat-lists xs)",
        "(range 10000)",
        "(repeat 1 10000)",
        "(zip xs xs)",
        "(enumerate xs)",
        "(sum-list xs)",
        "(sort-list xs)",
        "(sublist xs 1)",
        "(index-of xs nil)",
        "(contains? xs nil)",
        "(= xs ys)",
        "(str xs)",
        "(apply list xs)",
        "(get ps :z 0)",
        "(merge ps ps)",
        "(assoc xs 0 1)",
    ],
)
def test_builtins_pay_for_the_elements_that_they_touch(body: str) -> None:
    definitions = """
    (def xs (range 1000))
    (def ys (map abs xs))
    (def ps (fold (fn (p i) (append p :k i)) (list) (range 50)))
    """
    loop = f"(for (i (range 4500)) {body})"
    assert fail(definitions + loop, limits=SMALL).code in ("E-LIMIT-002", "E-LIMIT-003")


def test_evaluation_is_fast_enough() -> None:
    text = "(defn fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib 18)"
    evaluator = Evaluator()
    started = time.process_time()
    run(text, evaluator=evaluator)
    seconds = time.process_time() - started
    steps = evaluator.limits.steps - evaluator.steps_left
    # 20 million steps in half a minute, with room for a slow machine.
    assert seconds / steps < 5e-6


PROGRAM = """
(def xs (list 1 2.5 (list :a "b") nil))
(defn f (x &key (y (+ x 1)) &rest z) (list x y z))
(defn g (n) (if (= n 0) (list) (append (g (- n 1)) (* n n))))
(let (a (g 4) (b c) (list 1 2) h (fn (k) (+ k b c)))
  (cond ((empty? a) nil)
        (else (fold + 0 (map h (filter number? a))))))
(for (i (range 3)) (let (r (list :x i)) (get r :x)))
(apply f 1 (list :y 3))
(str (and 1 nil) (or nil "s") '(q r))
"""


@given(st.randoms(use_true_random=False))
def test_mutated_programs_give_a_value_or_an_error(chance: random.Random) -> None:
    words = PROGRAM.replace("(", " ( ").replace(")", " ) ").split()
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(words))
        match chance.randrange(3):
            case 0:
                del words[at]
            case 1:
                words.insert(at, chance.choice(words))
            case _:
                words[at] = chance.choice(words)
    try:
        run(" ".join(words), limits=SMALL)
    except SexpgpuError as error:
        place = error.span
    else:
        place = Span(Source("t.sx", ""), 1, 1)
    assert place is not None
