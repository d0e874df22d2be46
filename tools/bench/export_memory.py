"""The peak memory of an export, for models of several sizes.

    python -m sexpgpu.tools.bench.export_memory [GIB …]

Writing may take 300 MB and the largest weight, whatever the model's size.  Each model's weights
come from a file that takes no room on the disk (it has a length and nothing in it); the export,
which does, is written beside it and removed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sexpgpu.schemas.safetensors import plan_header

ALLOWANCE = 300e6
_MODEL = """
(defknob width {width})
(def record (fields :x (list f32 width)))
(defmodel net ()
  (parts layers (for (i (range {layers}))
                  (param (list width width) :load "weights.safetensors" :key (str "layer." i))))
  (apply (x) (fold (fn (x w) (relu (matmul x w))) x layers)))
(def model (net))
"""


def write_program(directory: Path, layers: int, width: int) -> Path:
    """A program of `layers` products by weights [width, width], which are loaded from a file."""
    tensors = [(f"layer.{i}", "F32", [width, width]) for i in range(layers)]
    head, header = plan_header(tensors, {})
    with (directory / "weights.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(header.size)
    path = directory / "model.sx"
    path.write_text(_MODEL.format(width=width, layers=layers))
    return path


def peak_of_export(path: Path, *flags: str) -> int:
    """Bytes of memory that exporting the program takes at most, pages of mapped files included.

    The export is removed.  Raises CalledProcessError where it fails.
    """
    script = "import sys; from sexpgpu.tools.cli import main; main(sys.argv[1:])"
    out = path.parent / "export"
    command = [sys.executable, "-c", script, "export", path.name, "-o", str(out), *flags]
    process = subprocess.Popen(command, cwd=path.parent, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    for file in out.iterdir() if out.is_dir() else ():
        file.unlink()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    sizes = [float(size) for size in sys.argv[1:]] or [0.25, 1.0, 2.25]
    for gibibytes in sizes:
        width = 4096
        layers = max(1, round(gibibytes * 2**30 / (4 * width * width)))
        for flags in (["--no-verify"], ["--no-verify", "--weights", "bf16"], []):
            with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
                path = write_program(Path(directory), layers, width)
                start = time.monotonic()
                peak = peak_of_export(path, *flags)
                print(
                    json.dumps(
                        {
                            "model_gib": round(layers * 4 * width * width / 2**30, 2),
                            "flags": " ".join(flags),
                            "largest_weight_mb": round(4 * width * width / 1e6),
                            "peak_mb": round(peak / 1e6),
                            "seconds": round(time.monotonic() - start, 1),
                        }
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
