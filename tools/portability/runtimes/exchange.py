"""Runs a case in a runtime and writes what came of it.  Needs NumPy alone, and nothing of ours.

    python exchange.py RUNNER CASE OUT

RUNNER is a module beside this one with `version()`, the runtime's own, and `load(path, case)`,
which gives a function from inputs by name to outputs by name.  CASE holds model.onnx, case.json
and `inputs-<batch>.safetensors`; OUT gets `outputs-<batch>.safetensors` and result.json, which is
written after each step, so that a crash tells how far it came.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[dict[str, Array]], Mapping[str, Any]]

#: NumPy has no bf16: its bits are passed.
DTYPES = {
    "F32": "<f4", "F64": "<f8", "BF16": "<u2", "I32": "<i4", "I64": "<i8", "BOOL": "|b1"
}  # fmt: skip

#: A time is the median of so many runs, of fewer where they take long.
RUNS, SECONDS = 21, 3.0


def read_tensors(path: Path) -> dict[str, Array]:
    """A safetensors file's tensors."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        begin, end = (8 + length + offset for offset in about["data_offsets"])
        flat = np.frombuffer(data[begin:end], DTYPES[about["dtype"]])
        tensors[name] = flat.reshape(about["shape"]).copy()
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Writes a safetensors file.  Raises ValueError for a dtype that no model has."""
    codes = {np.dtype(text): code for code, text in DTYPES.items()}
    header: dict[str, Any] = {}
    pieces: list[bytes] = []
    end = 0
    for name, array in tensors.items():
        dtype = array.dtype.newbyteorder("=")
        if dtype not in codes:
            raise ValueError(f"`{name}` is of dtype {array.dtype}, which no model has")
        pieces.append(np.ascontiguousarray(array).tobytes())
        begin, end = end, end + len(pieces[-1])
        header[name] = {
            "dtype": codes[dtype], "shape": list(array.shape), "data_offsets": [begin, end]
        }  # fmt: skip
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(pieces))


def main(runner: str, case: Path, out: Path) -> int:
    """Runs every batch of the case; the exit status is 1 where the runtime refused something."""
    result: dict[str, Any] = {"version": "", "load_seconds": None, "runs": [], "failure": None}

    def note(**changes: Any) -> None:
        result.update(changes)
        (out / "result.json").write_text(json.dumps(result))

    about = json.loads((case / "case.json").read_text())
    stage: dict[str, Any] = {"stage": "import"}
    note(failure={**stage, "error": "the process ended"})
    try:
        module = importlib.import_module(runner)
        stage = {"stage": "load"}
        note(version=module.version(), failure={**stage, "error": "the process ended"})
        begin = time.perf_counter()
        run: Run = module.load(str(case / "model.onnx"), about)
        result["load_seconds"] = time.perf_counter() - begin
        for batch in about["batches"]:
            stage = {"stage": "run", "batch": batch}
            note(failure={**stage, "error": "the process ended"})
            inputs = read_tensors(case / f"inputs-{batch}.safetensors")
            begin = time.perf_counter()
            outputs = {name: np.asarray(array) for name, array in run(inputs).items()}
            first = time.perf_counter() - begin
            write_tensors(out / f"outputs-{batch}.safetensors", outputs)
            seconds = _median(run, inputs, first) if batch == min(about["batches"]) else first
            result["runs"].append({"batch": batch, "seconds": seconds})
    except BaseException as error:
        text = "".join(traceback.format_exception_only(error)).strip()
        note(failure={**stage, "error": text[-20_000:]})
        traceback.print_exc()
        return 1
    note(failure=None)
    return 0


def _median(run: Run, inputs: dict[str, Array], first: float) -> float:
    """Seconds of a run after the first one, which may be slower; of that alone if it took long."""
    if first > SECONDS:
        return first
    times: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(times) < RUNS and (len(times) < 2 or time.perf_counter() < until):
        begin = time.perf_counter()
        run(inputs)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
