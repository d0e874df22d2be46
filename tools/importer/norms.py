"""The layer norms of a program: a function of its own makes them."""

from __future__ import annotations

from sexpgpu.tools.importer.forms import Form, call

#: A norm of the width `dim`.
NORM: Form = ["norm"]


def norm_function(epsilon: float) -> Form:
    """The definition of what makes it."""
    return ["defn", "norm", [], call("layer-norm", "dim", epsilon=epsilon)]
