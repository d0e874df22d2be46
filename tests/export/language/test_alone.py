"""The model alone: its inputs and outputs by name, and why it cannot run alone."""

from __future__ import annotations

import time

import pytest

from sexpgpu.export.language.alone import VALUE_LIMIT, flatten_prediction, trace_alone
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import place, program, program_error, report_error, traced

HEAD = "(def record (fields :x (list f32 8) :n (list i32 3)))\n"


def interface(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Inputs and outputs by name, with their types as text."""
    graph, _ = traced(HEAD + text)
    return (
        {value.name: str(value.type) for value in graph.inputs},
        {name: str(value.type) for name, value in graph.outputs.items()},
    )


X = "[batch, 8] f32"
N = "[batch, 3] i32"


# Inputs


@pytest.mark.parametrize(
    ("prepare", "model", "inputs"),
    [
        ("(get r :x)", "(x)", {"inputs": X}),
        ("(list (get r :x))", "(x)", {"inputs.0": X}),
        ("(list (get r :x) (get r :n))", "(x n)", {"inputs.0": X, "inputs.1": N}),
        # what is no tensor is passed as it is
        ("(list (get r :x) 3 nil true)", "(x a b c)", {"inputs.0": X}),
        ("(list :key (get r :x))", "(k x)", {"inputs.1": X}),
        ("(list (get r :x) :mask (get r :n))", "(x &key mask)", {"inputs.0": X, "inputs.2": N}),
        # lists inside are the model's to take apart
        ("(list (list (get r :x) 2 (get r :n)))", "((x a n))", {"inputs.0.0": X, "inputs.0.2": N}),
        ("(list (get r :x) (get r :x))", "(x y)", {"inputs.0": X, "inputs.1": X}),
    ],
)
def test_inputs_are_named_by_where_they_stand(
    prepare: str, model: str, inputs: dict[str, str]
) -> None:
    text = f"(defn prepare (r) (list :inputs {prepare} :targets 1))\n(defn model {model} (relu x))"
    assert interface(text)[0] == inputs


def test_without_prepare_every_field_is_an_input() -> None:
    assert interface("(defn model (x n) x)")[0] == {"inputs.0": X, "inputs.1": N}
    graph, _ = traced("(def record (fields :x f32))\n(defn model (x) x)")
    assert [value.name for value in graph.inputs] == ["inputs"]


def test_a_keyword_in_inputs_reaches_the_model() -> None:
    text = (
        "(defn prepare (r) (list :inputs (list (get r :x) :twice)))\n"
        "(defn model (x how) (if (= how :twice) (* 2 x) x))"
    )
    graph, _ = traced(HEAD + text)
    assert "*" in [node.operation.name for node in graph.nodes]


def test_what_prepare_computes_is_no_part_of_the_model() -> None:
    graph, _ = traced(
        HEAD + "(def w (param (list 8 4)))\n"
        "(defn prepare (r) (list :inputs (matmul (get r :x) w)))\n(defn model (y) (relu y))"
    )
    assert [node.operation.name for node in graph.nodes] == ["relu"]
    assert graph.weights == {}
    assert graph.inputs[0].type.shape[1:] == (4,)


def test_eval_prepare_comes_before_prepare() -> None:
    text = (
        "(defn prepare (r) (list :inputs (get r :x)))\n"
        "(defn eval-prepare (r) (list :inputs (get r :n)))\n(defn model (y) y)"
    )
    assert interface(text)[0] == {"inputs": N}


def test_prepare_may_draw_random_numbers() -> None:
    text = (
        "(defn prepare (r)\n"
        "  (let (x (get r :x)) (list :inputs (+ x (random-normal (shape x))))))\n"
        "(defn model (y) y)"
    )
    assert interface(text) == ({"inputs": X}, {"output": X})


# Outputs


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("x", ["output"]),
        ("(list x)", ["output.0"]),
        ("(list x x)", ["output.0", "output.1"]),
        ("(list :logits x :aux (list x x))", ["logits", "aux.0", "aux.1"]),
        ("(list x (list :a x :b (list :c x)))", ["output.0", "output.1.a", "output.1.b.c"]),
        ("(list :a (list :b (list x x)))", ["a.b.0", "a.b.1"]),
        # numbers, booleans, strings and nil are left out, and keep their places
        ('(list 1 x 2.5 true "text" nil x)', ["output.1", "output.6"]),
        ('(list :loss 1 :y x :note "text")', ["y"]),
        ("(list (list) x)", ["output.1"]),
    ],
)
def test_outputs_are_named_by_their_paths(body: str, names: list[str]) -> None:
    assert list(interface(f"(defn model (x n) {body})")[1]) == names


def test_each_output_keeps_its_dtype() -> None:
    body = "(list x n (cast x bf16) (> x 0) (cast x f64) (cast n i64))"
    dtypes = [type.split()[-1] for type in interface(f"(defn model (x n) {body})")[1].values()]
    assert dtypes == ["f32", "i32", "bf16", "bool", "f64", "i64"]


def test_an_output_may_be_an_input_or_a_parameter_or_a_constant() -> None:
    graph, _ = traced(HEAD + "(def w (param 2))\n(defn model (x n) (list x w (tensor 1.0)))")
    assert graph.outputs["output.0"] is graph.inputs[0]
    assert graph.outputs["output.1"] is graph.weights["w"]


def test_metrics_counters_and_guards_are_no_part_of_the_model() -> None:
    text = (
        "(defmodel net () (parts l (linear 8 4)) (apply (x n)\n"
        "  (let (y (l x))\n"
        "    (metric :size (mean (* y y)))\n"
        "    (counter :seen (sum n))\n"
        "    (guard :finite (all (is-finite y)))\n"
        "    y)))\n(def model (net))"
    )
    graph, _ = traced(HEAD + text)
    assert [node.operation.name for node in graph.nodes] == ["matmul", "+"]


# E-INFER-001


def test_a_prediction_that_holds_a_model_says_so_in_the_seeds_words() -> None:
    text = "(def l (linear 8 4))\n(defn model (x n) (list (l x) l))"
    error = program_error(HEAD + text, "E-INFER-001")
    assert error.render() == (
        "error[E-INFER-001]: a model run alone returns tensors, in lists and plists; "
        "`output.1` is a model"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("(list :a x :b (list x model))", "`b.1` is a function"),
        ("(list x :key)", "`output.1` is a keyword"),
        ("(list x (dtype x))", "`output.1` is a dtype"),
        ("(list x (dim x 0))", "`output.1` is the batch dimension"),
        ("(list x 'name)", "`output.1` is a symbol"),
        ("linear", "`output` is a kind of model"),
        ("(zeros)", "`output` is an initializer"),
    ],
)
def test_anything_but_tensors_and_plain_values_is_refused(body: str, said: str) -> None:
    error = program_error(HEAD + f"(defn model (x n) {body})", "E-INFER-001")
    assert error.message.endswith(said)


@pytest.mark.parametrize(
    ("body", "came"), [("(list 1 nil)", "a list of 2"), ("nil", "nil"), ("(list)", "an empty list")]
)
def test_a_prediction_without_tensors_is_refused(body: str, came: str) -> None:
    error = program_error(HEAD + f"(defn model (x n) {body})", "E-INFER-001")
    assert error.message.endswith("there is none in its prediction")
    assert error.came == came


def test_two_outputs_of_one_name_are_refused() -> None:
    error = program_error(HEAD + "(defn model (x n) (list :a x :a n))", "E-INFER-001")
    assert error.message == "two tensors of the prediction are called `a`"


def test_a_field_that_is_read_past_the_inputs_is_refused() -> None:
    text = (
        "(defn prepare (r) (list :inputs (list (get r :x) (fn (y) (+ y (get r :x))))))\n"
        "(defn model (x f) (f x))"
    )
    error = program_error(HEAD + text, "E-INFER-001")
    assert error.message == "the model reads the record's field `x` past its inputs"
    assert place(error) == (2, 7, "prepare")


def test_random_numbers_that_are_read_past_the_inputs_are_refused() -> None:
    text = (
        "(defn prepare (r) (let (noise (random-normal (list 8)))\n"
        "  (list :inputs (list (get r :x) (fn (y) (+ y noise))))))\n(defn model (x f) (f x))"
    )
    error = program_error(HEAD + text, "E-INFER-002")
    assert error.place is not None
    assert error.place.endswith("program.sx:2:31")


# E-MODEL-003


def test_a_program_that_says_nowhere_what_a_record_is() -> None:
    error = program_error("(def model (linear 8 4))", "E-MODEL-003")
    assert error.expected is not None
    assert "(def record (fields" in error.expected


@pytest.mark.parametrize(
    ("value", "came"),
    [
        ("(list :input (get r :x))", "a list of 2: (:input #<tensor [batch, 8] f32>)"),
        ("(get r :x)", "a tensor [batch, 8] f32"),
        ("(list (get r :x))", "a list of 1: (#<tensor [batch, 8] f32>)"),
        ("nil", "nil"),
    ],
)
def test_a_prepare_that_gives_no_inputs(value: str, came: str) -> None:
    text = f"(defn prepare (r) {value})\n(defn model (x) x)"
    error = program_error(HEAD + text, "E-MODEL-003")
    assert error.came == came
    assert place(error) == (2, 7, "prepare")


def test_a_misnamed_key_of_prepare() -> None:
    text = "(defn eval-prepare (r) (list :input (get r :x)))\n(defn model (x) x)"
    error = program_error(HEAD + text, "E-MODEL-003")
    assert error.message == "`eval-prepare` returns a plist with `:inputs`"
    assert error.help == "rename `:input` to `:inputs`"


def test_a_misspelt_field_is_an_error_at_its_keyword() -> None:
    text = "(defn prepare (r) (list :inputs (get r :xx)))\n(defn model (x) x)"
    error = program_error(HEAD + text, "E-VALUE-001")
    assert place(error) == (2, 40, ":xx")
    assert error.help == "did you mean `:x`?"


# Bounds


@pytest.mark.parametrize("leaf", ["x", "nil", "1"])
def test_a_prediction_that_shares_its_parts_without_bound(leaf: str) -> None:
    started = time.process_time()
    text = f"(defn model (x n) (fold (fn (t i) (list t t)) {leaf} (range 60)))"
    error = program_error(HEAD + text, "E-LIMIT-004")
    assert f"{VALUE_LIMIT:,} values" in error.message
    assert time.process_time() - started < 5


def test_inputs_that_share_their_parts_without_bound() -> None:
    started = time.process_time()
    for leaf in ("(get r :x)", "nil"):
        text = (
            f"(defn prepare (r) (list :inputs (fold (fn (t i) (list t t)) {leaf} (range 60))))\n"
            "(defn model (x y) x)"
        )
        assert "`:inputs`" in program_error(HEAD + text, "E-LIMIT-004").message
    assert time.process_time() - started < 5


def test_a_prediction_may_nest_deep() -> None:
    text = "(defn model (x n) (fold (fn (t i) (list t)) x (range 900)))"
    names = list(interface(text)[1])
    assert names == ["output" + ".0" * 900]


def test_flattening_stops_at_what_is_no_tensor() -> None:
    with pytest.raises(SexpgpuError) as caught:
        list(flatten_prediction((1, object())))
    assert caught.value.code == "E-INFER-001"
    assert list(flatten_prediction(None)) == []


# The graph


def test_the_graph_holds_what_the_outputs_need_and_no_more() -> None:
    compiled = program(
        HEAD + "(defmodel net () (parts used (linear 8 4) unused (linear 8 4))\n"
        "  (apply (x n) (let (waste (unused x)) (used x))))\n(def model (net))"
    )
    alone = trace_alone(compiled)
    assert list(alone.parameters) == ["used.w", "used.b"]
    assert list(alone.graph.weights) == ["used.w", "used.b"]
    assert [node.operation.name for node in alone.graph.nodes] == ["matmul", "+"]
    assert len(compiled.parameters()) == 4


def test_a_trace_leaves_the_tracer_as_it_was() -> None:
    compiled = program(HEAD + "(defn model (x n) (if 1 (x) n))")
    with pytest.raises(SexpgpuError):
        trace_alone(compiled)
    assert not compiled.tracer.training
    assert compiled.tracer.scope == ""


def test_errors_of_the_model_reach_the_user_when_it_is_checked() -> None:
    error = report_error(HEAD + "(defn model (x n) (+ x n))", "E-DTYPE-001")
    assert place(error) == (2, 19, "(+ x n)")
