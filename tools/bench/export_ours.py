"""This project's export in a process of its own.

    python -m sexpgpu.tools.bench.export_ours FOLDER OUT (verified|unverified)

Modules are loaded before the clock starts.  What is timed begins with the program's text and the
checkpoint's files and ends with the directory in place.  Prints `{"seconds": …, "peak_bytes": …,
"weight_bytes": …}`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

# Loaded by an export when it comes to it.
import onnxruntime  # noqa: F401

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.subject import Subject, from_program, from_program_and_checkpoint
from sexpgpu.tools.bench.peak import forget_peak, peak_bytes


def subject_of(description: dict[str, object]) -> Subject:
    """The model with its weights, as `sexpgpu export` finds it."""
    program, checkpoint = Path(str(description["program"])), description["checkpoint"]
    if checkpoint is None:
        knobs = description["knobs"]
        assert isinstance(knobs, dict)
        return from_program(program, None, knobs)
    return from_program_and_checkpoint(program, str(checkpoint), trained=False)


def main() -> None:
    folder, out, mode = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    description = json.loads((folder / "model.json").read_text())
    forget_peak()
    begin = time.perf_counter()
    exported = export_model(subject_of(description), out, ExportOptions(verify=mode == "verified"))
    seconds = time.perf_counter() - begin
    found = {
        "seconds": seconds,
        "peak_bytes": peak_bytes(),
        "weight_bytes": exported.weight_bytes,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
