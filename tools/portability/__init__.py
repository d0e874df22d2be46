"""Every example's export in every runtime that people use, each in an environment of its own.

`python -m sexpgpu.tools.portability` exports the examples, runs them on the same inputs, compares
the outputs with the model's meaning in NumPy, and writes the table of docs/runtimes.md.
"""

from __future__ import annotations

from pathlib import Path

#: The working copy, whose examples are run; relative paths of programs start here.
ROOT = Path(__file__).resolve().parents[2]

#: Where exports, environments and results are kept.
WORK = ROOT / "build" / "portability"
