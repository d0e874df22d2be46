"""Programs for tests: text into a file, a file into a graph, a graph with weights and values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sexpgpu.export.graph.graph import Graph, Value, reachable
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.models import defmodel_form, walk_parts
from sexpgpu.export.language.program import Program, base_names, compile_program
from sexpgpu.export.language.report import Report, report_on
from sexpgpu.export.language.tensors import Parameter, Tensor
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.schemas.errors import SexpgpuError, Source

GPT = """
(defknob window 12)
(defknob dim 16)
(defknob depth 2)
(def record (fields :tokens (list i32 window)))
(defmodel block (dim heads)
  (parts norm-1 (layer-norm dim)
         attention (self-attention dim heads :causal true)
         norm-2 (layer-norm dim)
         mlp (mlp dim (* 4 dim) dim))
  (apply (x)
    (let (x (+ x (attention (norm-1 x))))
      (+ x (mlp (norm-2 x))))))
(defmodel gpt (vocab dim depth heads window)
  (parts tok    (param (list vocab dim) :init (normal 0.5))
         pos    (param (list window dim) :init (normal 0.5))
         blocks (for (i (range depth)) (block dim heads))
         norm   (layer-norm dim))
  (apply (tokens)
    (let (x (fold (fn (x b) (b x)) (+ (take tok tokens) pos) blocks))
      (matmul (norm x) (transpose tok)))))
(def model (gpt 40 dim depth 4 window))
"""


def program(
    text: str, variant: str | None = None, knobs: Mapping[str, object] | None = None
) -> Program:
    """The program of a text, in a file of its own."""
    directory = Path(tempfile.mkdtemp())
    path = directory / "program.sx"
    path.write_text(text)
    return compile_program(path, variant, knobs)


def traced(text: str, knobs: Mapping[str, object] | None = None) -> tuple[Graph, dict[str, Array]]:
    """The graph of a program's model, and its initial weights."""
    compiled = program(text, knobs=knobs)
    alone = trace_alone(compiled)
    weights = {path: initial_value(p, 0) for path, p in compiled.parameters().items()}
    return alone.graph, weights


def program_error(text: str, code: str) -> SexpgpuError:
    """The error that compiling and tracing a program must raise."""
    with pytest.raises(SexpgpuError) as caught:
        traced(text)
    assert caught.value.code == code, caught.value.render()
    return caught.value


def report(
    text: str, variant: str | None = None, knobs: Mapping[str, object] | None = None
) -> Report:
    """What `check` finds out about a program."""
    directory = Path(tempfile.mkdtemp())
    path = directory / "program.sx"
    path.write_text(text)
    return report_on(path, variant, knobs or {})


def report_error(text: str, code: str) -> SexpgpuError:
    """The error that checking a program, its training included, must raise."""
    with pytest.raises(SexpgpuError) as caught:
        report(text)
    assert caught.value.code == code, caught.value.render()
    return caught.value


def place(error: SexpgpuError) -> tuple[int, int, str]:
    """Line, column and text of what the caret is under."""
    span = error.user_span
    assert span is not None, error.render()
    line = span.source.line(span.line)
    return span.line, span.column, line[span.column - 1 : span.column - 1 + span.width]


def session() -> tuple[Evaluator, Environment, Tracer]:
    """An evaluator that knows every name of the language, for expressions without a program."""
    tracer = Tracer()
    evaluator = Evaluator({"defmodel": defmodel_form(tracer)})
    return evaluator, evaluator.environment(base_names(evaluator, tracer)), tracer


def value_of(text: str) -> object:
    """The value of the last of some forms, its tensors computed by the reference."""
    evaluator, environment, _ = session()
    return computed(evaluator.run(Source("text", text), environment), environment)


def failure_of(text: str, code: str) -> SexpgpuError:
    """The error that evaluating some forms must raise."""
    evaluator, environment, _ = session()
    with pytest.raises(SexpgpuError) as caught:
        evaluator.run(Source("text", text), environment)
    assert caught.value.code == code, caught.value.render()
    return caught.value


def computed(value: object, environment: Environment) -> object:
    """The value with an array for each tensor in it; parameters are as they begin."""
    tensors = list(_tensors(value))
    outputs = {f"y{i}": tensor.value for i, tensor in enumerate(tensors)}
    weights: dict[str, Value] = {}
    arrays: dict[str, Array] = {}
    seen: set[int] = set()
    top = environment.top
    for name in top.own:
        for path, part in walk_parts(top.values[name], name, seen):
            if isinstance(part, Parameter):
                part.path = path
                weights[path], arrays[path] = part.value, initial_value(part, 0)
    graph = Graph(weights=weights, nodes=reachable(outputs.values()), outputs=outputs)
    found = iter(evaluate(graph, {}, arrays).values())

    def fill(part: object) -> object:
        if isinstance(part, tuple):
            return tuple([fill(item) for item in part])
        return next(found) if isinstance(part, Tensor) else part

    return fill(value)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)
