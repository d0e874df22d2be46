"""How quickly a program becomes a model: `python -m sexpgpu.tools.bench.compile`.

A program of the shape of Llama 7B (Touvron et al. 2023), 32 layers, is compiled to model.json, and
`sexpgpu --help` is run; each in a process of its own, beside one that only imports NumPy.  What is
measured is the processor's time, which other processes disturb least; the least of some runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sexpgpu.tools.bench.models import command_line
from sexpgpu.tools.bench.processes import environment

_PROGRAM = """
(def record (fields :tokens (list i32 2048)))

(defmodel block (dim heads hidden)
  (parts attention-norm (rms-norm dim)
         attention      (self-attention dim heads :causal true :bias false :rotary true)
         mlp-norm       (rms-norm dim)
         mlp            (swiglu dim hidden))
  (apply (x)
    (let (x (+ x (attention (attention-norm x))))
      (+ x (mlp (mlp-norm x))))))

(defmodel llama (vocab dim depth heads hidden)
  (parts tokens (param (list vocab dim))
         blocks (for (i (range depth)) (block dim heads hidden))
         norm   (rms-norm dim)
         head   (param (list dim vocab)))
  (apply (ids)
    (let (x (fold (fn (x block) (block x)) (take tokens ids) blocks))
      (matmul (norm x) head))))

(def model (llama 32000 4096 32 32 11008))
"""
_COMPILE = """
import sys
from pathlib import Path
from sexpgpu.export.graph.document import ModelFile, write_model
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
alone = trace_alone(compile_program(Path(sys.argv[1]), None, {}))
Path(sys.argv[2]).write_bytes(write_model(ModelFile(alone.graph), "bench"))
"""


@click.command()
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures here.")
@click.option("--runs", default=5, show_default=True)
def main(json_file: Path | None, runs: int) -> None:
    """Measure what compiling a large program and starting the command take."""
    with TemporaryDirectory() as folder:
        program, model = Path(folder) / "llama.sx", Path(folder) / "model.json"
        program.write_text(_PROGRAM)
        commands = {
            "import numpy": [sys.executable, "-c", "import numpy"],
            "sexpgpu --help": [*command_line(), "--help"],
            "Llama 7B to model.json": [sys.executable, "-c", _COMPILE, str(program), str(model)],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                taken[name].append(_processor_seconds(command))
        size = model.stat().st_size
    seconds = {name: min(values) for name, values in taken.items()}
    for name, value in seconds.items():
        ratio = value / seconds["import numpy"]
        click.echo(f"{name:24} {value:7.3f} s of the processor's time, {ratio:5.2f} × NumPy's")
    click.echo(f"model.json is {size:,} bytes")
    holds = seconds["Llama 7B to model.json"] < 3
    click.echo(f"Llama 7B to model.json in less than 3 s: {'yes' if holds else 'NO'}")
    if json_file is not None:
        data = {"processor_seconds": seconds, "model_json_bytes": size}
        json_file.write_text(json.dumps(data, indent=2) + "\n")
    sys.exit(0 if holds else 1)


def _processor_seconds(command: Sequence[str]) -> float:
    """User and system time of a process that must succeed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
