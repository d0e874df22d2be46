"""What `--at` saves: a GPT-like model in ONNX Runtime with one row against the whole window.

    python -m sexpgpu.tools.bench.at [ROUNDS]

Four layers, 768 wide, 12 heads, 32,000 symbols, a window of 256.  The two run in turn, so that
what else the machine does falls on both; the share of the fastest runs is the one to read.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.initializers import initial_value
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fold import fold_constants

WINDOW, VOCABULARY = 256, 32_000
_PROGRAM = """
(def record (fields :tokens (list i32 256)))
(defmodel block (dim heads)
  (parts norm-1 (layer-norm dim) attention (self-attention dim heads :causal true)
         norm-2 (layer-norm dim) mlp (mlp dim (* 4 dim) dim))
  (apply (x) (let (x (+ x (attention (norm-1 x)))) (+ x (mlp (norm-2 x))))))
(defmodel gpt ()
  (parts tok (param (list 32000 768) :init (normal 0.02))
         pos (param (list 256 768) :init (normal 0.02))
         blocks (for (i (range 4)) (block 768 12))
         norm (layer-norm 768))
  (apply (tokens)
    (let (x (fold (fn (x b) (b x)) (+ (take tok tokens) pos) blocks))
      (matmul (norm x) (transpose tok)))))
(def model (gpt))
"""


def load(graph: Graph, weights: dict[str, Array]) -> Session:
    """The graph in ONNX Runtime, on one thread."""
    model = build_model(fold_constants(graph), weights.__getitem__, BuildOptions())
    return Session(model.SerializeToString(), threads=1)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gpt.sx"
        path.write_text(_PROGRAM)
        program = compile_program(path)
    graph = trace_alone(program).graph
    weights = {name: initial_value(p, 0) for name, p in program.parameters().items()}
    generator = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        "inputs": generator.integers(0, VOCABULARY, (1, WINDOW)).astype(np.int32),
        "at": np.array([100], np.int32),
    }
    sessions = {"window": load(graph, weights), "row": load(gather_at(graph), weights)}
    seconds: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(rounds + 1):
        for name, session in sessions.items():
            start = time.perf_counter()
            session.run(feeds)
            seconds[name].append(time.perf_counter() - start)
    fastest = {name: min(times[1:]) for name, times in seconds.items()}
    pairs = zip(seconds["row"][1:], seconds["window"][1:], strict=True)
    print(
        json.dumps(
            {
                "window_ms": round(1000 * fastest["window"], 1),
                "row_ms": round(1000 * fastest["row"], 1),
                "share": round(fastest["row"] / fastest["window"], 3),
                "median_share": round(statistics.median(a / b for a, b in pairs), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
