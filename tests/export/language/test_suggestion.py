"""Did you mean."""

from __future__ import annotations

from sexpgpu.export.language.suggestion import did_you_mean


def test_the_closest_names_are_suggested() -> None:
    names = ["layer-norm", "layer-norms", "linear", "matmul"]
    assert did_you_mean("matmull", names) == "did you mean `matmul`?"
    assert did_you_mean("layer-nrm", names) == "did you mean `layer-norm` or `layer-norms`?"
    assert did_you_mean("dim", ["dims"], ":") == "did you mean `:dims`?"
    assert did_you_mean("zzz", names) is None
    assert did_you_mean("x", []) is None


def test_what_other_libraries_call_it() -> None:
    assert did_you_mean("dim", ["axis", "keep"], ":") == "did you mean `:axis`?"
    assert did_you_mean("keepdims", ["axis", "keep"], ":") == "did you mean `:keep`?"
    assert did_you_mean("kernel_size", ["size"]) == "did you mean `size`?"
    assert did_you_mean("kernel_size", ["axis"]) is None
