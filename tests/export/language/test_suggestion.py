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
