"""The model in training: what `loss` may return, and what is noted on the way."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.training import trace_evaluation, trace_training
from support.programs import place, program, report, report_error

HEAD = "(def record (fields :x (list f32 8)))\n(def model (linear 8 4))\n"


def metrics(text: str) -> list[str] | None:
    training = trace_training(program(text))
    return training and [*training.names("metric"), *training.names("counter")]


def test_a_program_without_loss_is_not_trained() -> None:
    assert metrics(HEAD) is None
    assert not report(HEAD).trains


@pytest.mark.parametrize(
    ("loss", "names"),
    [
        ("(mean p)", ["loss"]),
        ("(list :loss (mean p))", ["loss"]),
        ("(list :error (max p) :loss (mean p))", ["loss", "error"]),
        ("(cast (mean p) bf16)", ["loss"]),
    ],
)
def test_a_loss_is_a_scalar_or_a_plist_with_one(loss: str, names: list[str]) -> None:
    assert metrics(HEAD + f"(defn loss (p r) {loss})") == names


def test_metrics_and_counters_of_the_model_come_after_the_losss() -> None:
    text = (
        "(def record (fields :x (list f32 8)))\n"
        "(defmodel net () (parts l (linear 8 4)) (apply (x)\n"
        "  (let (y (l x))\n"
        "    (metric :size (mean y)) (counter :seen 1) (guard :fine (all (is-finite y))) y)))\n"
        "(def model (net))\n"
        "(defn loss (p r) (do (metric :size (mean p)) (list :loss (mean p) :error (max p))))"
    )
    assert metrics(text) == ["loss", "error", "size", "size.2", "seen"]


def test_a_part_that_is_used_twice_notes_twice() -> None:
    text = (
        "(def record (fields :x (list f32 8)))\n"
        "(defmodel part () (parts l (linear 8 8)) (apply (x)\n"
        "  (let (y (l x))\n"
        "    (metric :size (mean y)) (counter :size 1) (guard :fine (all (is-finite y))) y)))\n"
        "(def p (part))\n(defn model (x) (p (p x)))\n"
        "(defn loss (p r) (list :loss (mean p) :learning_rate (max p)))"
    )
    training = trace_training(program(text))
    assert training is not None
    assert training.names("metric") == ["loss", "learning_rate.2", "size", "size.3"]
    assert training.names("counter") == ["size.2", "size.4"]
    assert training.names("guard") == [*training.guards] == ["fine", "fine.2"]
    values = [training.graph.outputs[f"guard:{name}"] for name in training.guards]
    assert values[0] is not values[1]


def test_loss_gets_all_that_prepare_gave() -> None:
    text = (
        "(def record (fields :x (list f32 8) :y i32))\n(def model (linear 8 4))\n"
        "(defn prepare (r) (list :inputs (get r :x) :targets (get r :y)))\n"
        "(defn loss (p r) (mean (cross-entropy p (get r :targets))))"
    )
    assert metrics(text) == ["loss"]


def test_training_prepares_with_prepare_and_not_eval_prepare() -> None:
    text = HEAD + (
        "(defn prepare (r) (list :inputs (get r :x) :extra (mean (get r :x))))\n"
        "(defn eval-prepare (r) (list :inputs (get r :x)))\n"
        "(defn loss (p r) (+ (mean p) (get r :extra)))"
    )
    assert metrics(text) == ["loss"]


def test_a_model_that_draws_random_numbers_trains_and_does_not_run_alone() -> None:
    text = (
        "(def record (fields :x (list f32 8)))\n"
        "(defn model (x) (+ x (random-normal (shape x))))\n(defn loss (p r) (mean p))"
    )
    found = report(text)
    assert found.trains
    assert found.obstacle is not None
    assert found.obstacle.code == "E-INFER-002"


def test_a_model_that_cannot_run_alone_trains() -> None:
    found = report(HEAD.replace("(linear 8 4)", "(fn (x) (list x :kind))") + LOSS_OF_FIRST)
    assert found.trains
    assert found.alone is None
    assert found.obstacle is not None
    assert found.obstacle.code == "E-INFER-001"


LOSS_OF_FIRST = "(defn loss (p r) (mean (first p)))"


@pytest.mark.parametrize(
    ("loss", "message", "came", "help"),
    [
        ("p", "what `loss` returns is no scalar", "a tensor [batch, 4] f32", "`mean`"),
        ("1.0", "what `loss` returns is no scalar", "a number: 1.0", None),
        ("(argmax (mean p :axis 0))", "no scalar", "a tensor [] i32", "(cast x f32)"),
        ("nil", "no scalar", "nil", None),
        ("(list (mean p))", "no scalar", "a list of 1", None),
        ("(list :los (mean p))", "has no `:loss`", ":los", "rename `:los` to `:loss`"),
        ("(list :loss p)", "`:loss` of what `loss` returns is no scalar", "[batch, 4]", "`mean`"),
        ("(list :loss (mean p) :accuracy 1)", "`:accuracy` of what", "a number: 1", None),
    ],
)
def test_anything_else_is_no_loss(loss: str, message: str, came: str, help: str | None) -> None:
    error = report_error(HEAD + f"(defn loss (p r) {loss})", "E-MODEL-004")
    assert message in error.message
    assert error.came is not None
    assert came in error.came
    assert (error.help or "") == "" if help is None else help in (error.help or "")
    assert place(error) == (3, 7, "loss")


def test_an_error_inside_the_loss_is_shown_there() -> None:
    error = report_error(HEAD + "(defn loss (p r)\n  (mean (get r :y)))", "E-VALUE-001")
    assert place(error) == (4, 16, ":y")
    assert [frame.name for frame in error.frames] == ["loss"]


NOTING = """
(def record (fields :x (list f32 8) :y i32 :unread f32))
(defn prepare (r) (list :inputs (get r :x) :targets (get r :y)))
(defn eval-prepare (r) (list :inputs (* 2.0 (get r :x)) :targets (get r :y)))
(defmodel net () (parts l (linear 8 4) spare (linear 2 2) d (dropout 0.5)) (apply (x)
  (let (y (d (l x)))
    (metric :size (mean y)) (counter :seen 1)
    (guard :fine (all (is-finite y)))
    y)))
(def model (net))
(defn loss (p r) (mean (+ (cross-entropy p (get r :targets)) (random-normal (list 1)))))
"""


def test_a_step_is_a_graph_from_the_records_fields_to_what_is_told_of_it() -> None:
    training = trace_training(program(NOTING))
    assert training is not None
    assert [value.name for value in training.graph.inputs] == ["x", "y"]
    assert [*training.graph.outputs] == ["metric:loss", "metric:size", "counter:seen", "guard:fine"]
    assert [*training.graph.weights] == [*training.parameters] == ["l.w", "l.b"]
    span = training.guards["fine"]
    assert span is not None
    assert span.line == 8
    assert [n.operation.name for n in training.graph.nodes if n.operation.random] == [
        "dropout",
        "random-normal",
    ]


def test_an_evaluation_leaves_dropout_out_and_prepares_its_own_way() -> None:
    evaluation = trace_evaluation(program(NOTING))
    assert evaluation is not None
    names = [node.operation.name for node in evaluation.graph.nodes]
    assert "dropout" not in names
    assert names.count("random-normal") == 1
    assert "*" in names
    assert evaluation.names("metric") == ["loss", "size"]


def test_nothing_is_noted_inside_a_scan() -> None:
    text = (
        "(def record (fields :x (list f32 8)))\n"
        "(defn model (x) (first (scan (fn (t v)\n"
        "  (do (metric :total (mean t)) (list (+ t v) t))) (* 0.0 (mean x :axis 1)) x :axis 1)))\n"
        "(defn loss (p r) (mean p))"
    )
    error = report_error(text, "E-VALUE-001")
    assert "one number a step" in error.message
    assert place(error)[0] == 3


@pytest.mark.parametrize(
    ("fields", "model"),
    [(":x (list f32 8)", "(linear 8 8)"), (":inputs f32 :x (list f32 8)", "(fn (n x) x)")],
)
def test_without_prepare_the_loss_gets_the_fields(fields: str, model: str) -> None:
    text = f"(def record (fields {fields}))\n(def model {model})\n"
    assert metrics(text + "(defn loss (p r) (mean (abs (- p (get r :x)))))") == ["loss"]
