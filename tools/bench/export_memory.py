"""The peak memory of an export, for models of several sizes.

    python -m sexpgpu.tools.bench.export_memory [GIB …]

Writing may take 300 MB and the largest weight, whatever the model's size.  Verification loads the
model: what is over that are pages of the weights' file, which the system takes back when it needs
them.  Each model's weights come from a file that takes no room on the disk (it has a length and
nothing in it); the export, which does, is written beside it and removed.
"""

from __future__ import annotations

import json
import os
import resource
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

    The export goes beside it.  Raises CalledProcessError where it fails.
    """
    places = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    report = path.parent / "peak"
    out = path.parent / "export"
    subprocess.run(
        [sys.executable, "-c", _EXPORT, str(report), "export", path.name, "-o", str(out), *flags],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return int(report.read_text())


_EXPORT = """
import atexit, sys
from sexpgpu.tools.bench.export_memory import write_peak
from sexpgpu.tools.cli import main
atexit.register(write_peak, sys.argv[1])
main(sys.argv[2:])
"""


def write_peak(path: str) -> None:
    """Writes the most memory that this process had, in bytes.

    A process that starts another hands it its own peak of what `getrusage` tells, so that Linux is
    asked for that of this program alone.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Path(path).write_text(str(peak))


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
