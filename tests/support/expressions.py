"""Expressions of the language: evaluated, their tensors by the reference, and printed."""

from __future__ import annotations

import numpy as np

from sexpgpu.export.graph.graph import Graph, reachable
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.tensors import Tensor
from sexpgpu.export.language.values import show
from support.programs import program


def shown_value(expression: str, *, before: str = "", training: bool = False) -> str:
    """What an expression gives, as the documents show it; `before` stands above it in its file."""
    compiled = program(f"{before}\n(defn shown-value ()\n{expression}\n)")
    compiled.tracer.training = training
    return _show(compiled.evaluator.apply(compiled.defined("shown-value"), []))


def _show(value: object) -> str:
    """Tensors as nested lists in `[ ]`, lists as they are made: `(list 6.0 [1.0 3.0])`."""
    if isinstance(value, Tensor):
        graph = Graph(nodes=reachable([value.value]), outputs={"value": value.value})
        return show_array(evaluate(graph, {}, {})["value"])
    if isinstance(value, tuple):
        return " ".join(["(list", *[_show(item) for item in value]]) + ")"
    return show(value)


def show_array(array: Array) -> str:
    """An array as nested lists, each number as short as its dtype allows."""
    if array.ndim:
        return "[" + " ".join([show_array(item) for item in array]) + "]"
    if array.dtype == np.bool_ or array.dtype.kind == "i":
        return show(array.item())
    return show(float(str(array)))
