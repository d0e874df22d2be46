"""A whole program: what its file defines, where its parts are called from, and its parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import GPT, place, program, program_error, report_error

HEAD = "(def record (fields :x (list f32 8)))\n"


def test_a_program_names_its_model_records_and_precision() -> None:
    compiled = program(
        "(def train (fields :x (list f32 8)))\n(def model (linear 8 4))\n"
        "(defrun :train train :precision bf16)"
    )
    assert list(compiled.parameters()) == ["w", "b"]
    assert compiled.slug == "program"
    assert compiled.precision == "bf16"
    records = compiled.records()
    assert records is not None
    assert list(records.fields) == ["x"]


def test_the_precision_of_a_program_without_a_run_is_f32() -> None:
    assert program(HEAD + "(def model (linear 8 4))").precision == "f32"


@pytest.mark.parametrize("name", ["train", "record", "eval"])
def test_a_loader_of_any_of_these_names_says_what_a_record_is(name: str) -> None:
    compiled = program(f"(def {name} (fields :x (list f32 8)))\n(def model (linear 8 4))")
    assert [v.name for v in trace_alone(compiled).graph.inputs] == ["inputs"]


def test_the_loader_of_the_run_comes_before_others() -> None:
    compiled = program(
        "(def train (fields :wrong i32))\n(def model (linear 8 4))\n"
        "(defrun :train (fields :x (list f32 8)))"
    )
    assert trace_alone(compiled).graph.inputs[0].type.shape[1:] == (8,)


# `model`


def test_a_program_without_a_model() -> None:
    error = program_error(HEAD + "(def modle (linear 8 4))", "E-MODEL-001")
    assert error.help == "rename `modle` to `model`"
    assert error.expected == "(def model (my-model 32 64))"


@pytest.mark.parametrize(
    ("value", "came"),
    [
        ("3", "a number: 3"),
        ("nil", None),
        ("(list (linear 8 4))", "a list of 1: (#<model linear>)"),
        ("linear", "a kind of model: #<defmodel linear>"),
    ],
)
def test_a_model_that_is_none(value: str, came: str | None) -> None:
    error = program_error(HEAD + f"(def model {value})", "E-MODEL-001")
    assert error.came == came
    assert place(error) == (2, 6, "model")


def test_a_kind_of_model_is_told_how_to_become_a_model() -> None:
    error = program_error(HEAD + "(def model linear)", "E-MODEL-001")
    assert error.help is not None
    assert error.help.startswith("make one: `(linear in out")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("(defmodel net () (parts) (apply (x y) x))\n(def model (net))", 3),
        ("(defn model (x y) x)", 2),
        ("(def model (fn () 1))", 2),
    ],
)
def test_a_model_of_another_number_of_inputs_is_shown_where_it_is_defined(
    text: str, line: int
) -> None:
    error = program_error(HEAD + text, "E-CALL-002")
    assert place(error)[::2] == (line, "model")
    assert error.came == "`model` is called with a tensor [batch, 8] f32"


def test_a_prepare_that_is_no_function() -> None:
    error = program_error(HEAD + "(def model (linear 8 4))\n(def prepare 3)", "E-CALL-001")
    assert place(error) == (3, 6, "prepare")


def test_a_loss_of_another_number_of_arguments() -> None:
    error = report_error(HEAD + "(def model (linear 8 4))\n(defn loss (p) p)", "E-CALL-002")
    assert place(error) == (3, 7, "loss")


# Parameters and their paths


def test_paths_are_part_names_indices_and_keys_from_the_root() -> None:
    paths = list(program(GPT).parameters())
    assert paths[:4] == ["tok", "pos", "blocks.0.norm-1.scale", "blocks.0.norm-1.bias"]
    assert "blocks.1.attention.q.w" in paths
    assert paths[-2:] == ["norm.scale", "norm.bias"]


def test_lists_and_plists_of_parts_nest() -> None:
    compiled = program(
        HEAD + "(defmodel net () (parts m (list :a (list (param 1) (linear 8 4)) :b (param 2)))\n"
        "  (apply (x) x))\n(def model (net))"
    )
    assert list(compiled.parameters()) == ["m.a.0", "m.a.1.w", "m.a.1.b", "m.b"]


def test_a_model_used_twice_shares_its_weights_and_has_the_first_path() -> None:
    compiled = program(
        HEAD + "(def shared (linear 8 8))\n"
        "(defmodel net (l) (parts first l second l w (get l :w)) (apply (x) (second (first x))))\n"
        "(def model (net shared))"
    )
    assert list(compiled.parameters()) == ["first.w", "first.b"]
    graph = trace_alone(compiled).graph
    assert [node.scope for node in graph.nodes] == ["first"] * 4
    assert len({node.inputs[1] for node in graph.nodes if node.operation.name == "matmul"}) == 1


def test_a_plain_function_reads_what_the_top_level_defines() -> None:
    compiled = program(
        HEAD + "(def w (param (list 8 4)))\n(def l (linear 4 2))\n(def rows (list (param 2)))\n"
        "(def double (+ w w))\n"
        "(defn model (x) (+ (l (matmul x double)) (first rows)))"
    )
    assert list(compiled.parameters()) == ["w", "l.w", "l.b", "rows.0"]
    assert list(trace_alone(compiled).parameters) == ["w", "l.w", "l.b", "rows.0"]


def test_the_models_own_parts_come_before_other_definitions() -> None:
    compiled = program(
        HEAD + "(def z (param 4))\n(def a (param 4))\n"
        "(defmodel net () (parts l (linear 8 4)) (apply (x) (+ (l x) z)))\n(def model (net))"
    )
    assert list(compiled.parameters()) == ["l.w", "l.b", "z", "a"]
    assert list(trace_alone(compiled).parameters) == ["l.w", "l.b", "z"]


def test_two_parameters_of_one_path_are_refused() -> None:
    text = (
        HEAD + "(defmodel net () (parts w (param 8)) (apply (x) (* x w)))\n(def model (net))\n"
        "(def w (param 8))"
    )
    error = program_error(text, "E-NAME-002")
    assert error.message == "two parameters have the path `w`"
    assert place(error) == (4, 8, "(param 8)")


def test_a_parameter_in_no_part_is_shown_where_it_is_declared() -> None:
    text = (
        HEAD + "(defmodel net ()\n  (parts)\n  (apply (x)\n    (matmul x (param (list 8 4)))))\n"
        "(def model (net))"
    )
    error = program_error(text, "E-MODEL-002")
    assert place(error) == (5, 15, "(param (list 8 4))")
    assert error.help == "name it in `parts`, or with a `def` at the top level"


def test_a_layer_made_where_it_is_applied_is_in_no_part() -> None:
    error = program_error(HEAD + "(defn model (x) ((linear 8 4) x))", "E-MODEL-002")
    assert error.user_span is not None
    assert "layers/linear.sx" in error.render()


# Forms of the top level


def test_a_second_run_is_refused() -> None:
    run = "(defrun :train train)"
    text = f"(def train (fields :x f32))\n(defn model (x) x)\n{run}\n{run}"
    error = program_error(text, "E-NAME-002")
    assert place(error) == (4, 1, run)


@pytest.mark.parametrize("form", ["(defrun :train 1)", "(defknob k 1)", "(defvariant v)"])
def test_what_stands_at_the_top_level_stands_nowhere_else(form: str) -> None:
    error = program_error(HEAD + f"(defn model (x) {form})", "E-FORM-001")
    assert error.message.endswith("stands at the top level only")
    assert place(error)[2] == form


def test_a_name_of_the_prelude_may_be_defined_anew_and_the_layers_keep_theirs() -> None:
    compiled = program(HEAD + "(defmodel linear () (parts) (apply (x) x))\n(def model (mlp 8 4 2))")
    assert list(compiled.parameters()) == ["up.w", "up.b", "down.w", "down.b"]


def test_a_program_may_be_parted_into_files(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "net.sx").write_text(
        "(defknob width 4)\n(defvariant wide :width 6)\n(def net (linear 8 width))"
    )
    main = tmp_path / "main.sx"
    main.write_text(HEAD + '(include "parts/net.sx")\n(def model net)')
    compiled = compile_program(main, "wide")
    assert compiled.parameters()["w"].type.shape == (8, 6)
    assert compiled.slug == "main-wide"
    assert [Path(source.name).name for source in compiled.sources] == ["main.sx", "net.sx"]


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SexpgpuError) as caught:
        compile_program(tmp_path / "none.sx")
    assert caught.value.code == "E-FILE-001"
    (tmp_path / "main.sx").write_text('\n(include "none.sx")')
    with pytest.raises(SexpgpuError) as caught:
        compile_program(tmp_path / "main.sx")
    assert caught.value.code == "E-INCLUDE-001"
    assert place(caught.value) == (2, 10, '"none.sx"')


def test_a_list_left_open_is_shown_at_its_bracket() -> None:
    text = HEAD + "(defmodel net ()\n  (parts)\n  (apply (x) x)\n(def model (net))"
    error = program_error(text, "E-READ-001")
    assert place(error)[:2] == (2, 1)
    assert "line 5" in error.render()
