"""`load-from`: which file, key and freezing every parameter gets, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.subject import from_program
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import program, program_error

STACK = """
(def record (fields :x (list f32 3)))
(defmodel stack ()
  (parts layers (for (i (range 2)) (linear 3 3))
         norm (layer-norm 3))
  (apply (x) (norm (fold (fn (x layer) (layer x)) x layers))))
"""


def loads(text: str) -> dict[str, tuple[str | None, str | None, bool]]:
    """File, key and freezing of every parameter by path."""
    return {p: (x.load, x.key, x.frozen) for p, x in program(text).parameters().items()}


def keys(renaming: str) -> list[str | None]:
    """The keys of the stack's parameters, in order, under a `:rename`."""
    text = f'{STACK}(def model (load-from "f.npz" (stack) :rename {renaming}))'
    return [key for _, key, _ in loads(text).values()]


def test_keys_are_paths_from_the_loaded_model() -> None:
    found = loads(f"""{STACK}
(defmodel outer () (parts inner (load-from "f.npz" (stack)) head (linear 3 2))
  (apply (x) (head (inner x))))
(def model (outer))""")
    assert found["inner.layers.1.w"] == ("f.npz", "layers.1.w", False)
    assert found["inner.norm.bias"] == ("f.npz", "norm.bias", False)
    assert found["head.w"] == (None, None, False)


@pytest.mark.parametrize(
    ("renaming", "first", "last"),
    [
        ('(list "layers" "h" "w" "weight")', "h.0.weight", "norm.bias"),
        # whole parts only: the `w` of "weight" and the `b` of "bias" stay
        ('(list "b" "B" "norm.bias" "weights")', "layers.0.w", "weights"),
        # the longest wins wherever it stands in the list, and is not renamed again
        ('(list "w" "x" "layers" "y" "layers.0.w" "layers.w")', "layers.w", "norm.bias"),
        # nothing may stand for a part
        ('(fn (path) (str "p." path))', "p.layers.0.w", "p.norm.bias"),
    ],
)
def test_rename(renaming: str, first: str, last: str) -> None:
    found = keys(renaming)
    assert (found[0], found[-1]) == (first, last)


def test_a_function_may_leave_a_parameter() -> None:
    found = keys('(fn (path) (if (= path "norm.scale") nil path))')
    assert found == ["layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b", None, "norm.bias"]


def test_a_parameter_keeps_its_own_file() -> None:
    found = loads(f"""{STACK}
(def model (load-from "b.npz" (load-from "a.npz" (stack)
  :rename (fn (path) (if (= path "norm.scale") path nil)) :frozen true)))""")
    assert found["norm.scale"] == ("a.npz", "norm.scale", True)
    assert found["norm.bias"] == ("b.npz", "norm.bias", False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ('"f.npz" 3', "E-TYPE-001"),
        ("3 (stack)", "E-TYPE-001"),
        ('"f.npz" (stack) :frozen 1', "E-TYPE-001"),
        ('"f.npz" (stack) :rename (list "a" 1)', "E-TYPE-001"),
        ('"f.npz" (stack) :rename (fn (path) 1)', "E-TYPE-001"),
        ('"f.npz" (stack) :rename 1', "E-CALL-001"),
        ('"f.npz" (stack) :rename (list "a")', "E-VALUE-001"),
        ('"f.npz"', "E-CALL-002"),
    ],
)
def test_what_is_refused(arguments: str, code: str) -> None:
    error = program_error(f"{STACK}(def model (load-from {arguments}))", code)
    assert error.span is not None
    assert error.span.line == 7


def test_transposed_weights_are_read_as_they_lie(tmp_path: Path) -> None:
    """A file whose weights are [out, in]; the ONNX and its numbers are checked by export itself."""
    source = tmp_path / "layer.safetensors"
    save_file({"fc.weight": np.ones((2, 3), np.float32), "fc.bias": np.ones(2, np.float32)}, source)
    path = tmp_path / "layer.sx"
    path.write_text(f"""
(def record (fields :x (list f32 3)))
(defmodel layer () (parts fc (linear 3 2 :transposed true)) (apply (x) (fc x)))
(def model (load-from "{source}" (layer) :rename (list "w" "weight" "b" "bias")))""")
    subject = from_program(path)
    assert subject.model.graph.weights["fc.w"].type.shape == (2, 3)
    np.testing.assert_array_equal(subject.read("fc.w"), np.ones((2, 3), np.float32))


def test_a_key_that_the_file_lacks_names_the_parameter(tmp_path: Path) -> None:
    source = tmp_path / "norm.safetensors"
    save_file({"weight": np.ones(3, np.float32)}, source)
    path = tmp_path / "norm.sx"
    path.write_text(f"""
(def record (fields :x (list f32 3)))
(def model (load-from "{source}" (rms-norm 3) :rename (list "scale" "wieght")))""")
    with pytest.raises(SexpgpuError, match="no key `wieght`") as caught:
        from_program(path)
    assert caught.value.code == "E-LOAD-002"
    assert "parameter `scale`" in caught.value.render()


def test_two_parameters_of_one_path() -> None:
    error = program_error(
        "(def record (fields :x (list f32 3)))\n(def w (param (list 3)))\n"
        "(defmodel m () (parts w (param (list 3))) (apply (x) (* x w)))\n(def model (m))",
        "E-NAME-002",
    )
    assert "`w`" in error.message


def test_paths_in_lists_that_share_their_parts() -> None:
    """60 lists, each holding the one before twice: a walk down every path would never end."""
    compiled = program(
        "(def record (fields :x (list f32 3)))\n"
        "(defmodel m ()\n"
        "  (parts deep (fold (fn (held i) (list held held)) (rms-norm 3) (range 60)))\n"
        "  (apply (x) ((fold (fn (held i) (first held)) deep (range 60)) x)))\n"
        "(def model (m))"
    )
    assert list(compiled.parameters()) == ["deep" + ".0" * 60 + ".scale"]
    assert list(trace_alone(compiled).parameters) == list(compiled.parameters())


def test_a_path_is_bounded() -> None:
    """20,000 lists in one another take no time; a parameter within them is refused."""
    text = (
        "(def record (fields :x (list f32 3)))\n"
        "(def deep (fold (fn (held i) (list held)) {} (range 20000)))\n"
        "(def model (rms-norm 3))"
    )
    assert list(program(text.format("1")).parameters()) == ["scale"]
    error = program_error(text.format("(param (list 3))"), "E-LIMIT-003")
    assert "path" in error.message
