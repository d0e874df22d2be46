"""Programs for tests: text into a file, a file into a graph, a graph with weights."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.program import Program, compile_program
from sexpgpu.schemas.errors import SexpgpuError

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
