"""Forms are laid out as people lay them out, and are read back as what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.language.data import Datum, ListDatum, write
from sexpgpu.export.language.reader import read
from sexpgpu.tools.importer.forms import Form, atom, call, flat, lay_out


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (1e-5, "1e-5"), (1e-12, "1e-12"), (10000.0, "10000.0"), (1e20, "1e20"),
     (0.0625, "0.0625"), (True, "true"), (None, "nil"), ('a"b\n', '"a\\"b\\n"')],
)  # fmt: skip
def test_atoms(value: int | float | str | None, text: str) -> None:
    assert atom(value) == text


def test_calls_leave_out_what_is_none() -> None:
    form = call("self-attention", "dim", kv_heads="kv-heads", window=None, causal=True, scale=0.5)
    assert flat(form) == "(self-attention dim :kv-heads kv-heads :causal true :scale 0.5)"


def test_a_call_that_fits_stands_on_a_line() -> None:
    form = call("rms-norm", "dim", epsilon=1e-6)
    assert lay_out(form) == "(rms-norm dim :epsilon 1e-6)"
    assert lay_out(form, column=72) == "(rms-norm dim :epsilon 1e-6)"
    assert lay_out(form, column=72, closing=1) == "(rms-norm dim\n" + " " * 74 + ":epsilon 1e-6)"


def test_calls_among_arguments_stand_on_lines_of_their_own() -> None:
    norm = call("layer-norm", "dim", epsilon=1e-12)
    form = call("post-norm-block", call("self-attention", "dim", "heads", transposed=True), norm,
                call("mlp", "dim", "hidden", "dim", transposed=True), norm)  # fmt: skip
    assert lay_out(form) == (
        "(post-norm-block\n"
        "  (self-attention dim heads :transposed true)\n"
        "  (layer-norm dim :epsilon 1e-12)\n"
        "  (mlp dim hidden dim :transposed true)\n"
        "  (layer-norm dim :epsilon 1e-12))"
    )


def test_names_and_values_stand_below_one_another() -> None:
    form = ["defmodel", "net", [], ["parts", "a", "1", "longer", ["f", "x"]],
            ["apply", ["x"], ["let", ["y", ["a", "x"]], ["+", "y", "1"]]]]  # fmt: skip
    assert lay_out(form) == (
        "(defmodel net ()\n"
        "  (parts a      1\n"
        "         longer (f x))\n"
        "  (apply (x)\n"
        "    (let (y (a x))\n"
        "      (+ y 1))))"
    )


def test_a_table_of_names() -> None:
    pairs = [atom(text) for text in ("a", "b" * 40, "long", "c" * 50)]
    form = ["def", "m", call("load-from", "weights", ["m"], frozen=True, rename=["list", *pairs])]
    assert lay_out(form) == (
        "(def m\n"
        "  (load-from weights (m) :frozen true\n"
        "    :rename (list\n"
        f'      "a"    "{"b" * 40}"\n'
        f'      "long" "{"c" * 50}")))'
    )


ATOMS = st.sampled_from(["x", "a-longer-name", "12", '"text"', ":key", "true", "another"])
FORMS: st.SearchStrategy[Form] = st.recursive(
    ATOMS,
    lambda inner: st.builds(lambda head, items: [head, *items], ATOMS, st.lists(inner, max_size=6)),
    max_leaves=30,
)


@given(FORMS)
def test_what_is_laid_out_is_read_as_what_it_was(form: Form) -> None:
    text = lay_out(form)
    (datum,) = read(text, "form")
    assert write(datum) == flat(form)
    assert all(not line.endswith(" ") for line in text.split("\n"))


def _names(datum: Datum) -> list[str]:
    return [write(item) for item in datum.items] if isinstance(datum, ListDatum) else []


@given(st.lists(st.sampled_from(["x", "weights", "hidden"]), min_size=1, max_size=60))
def test_no_line_is_wider_than_the_page(names: list[str]) -> None:
    text = lay_out(["f", *names])
    assert max(map(len, text.split("\n"))) <= 100
    (datum,) = read(text, "form")
    assert _names(datum) == ["f", *names]
