"""An exported file in ONNX Runtime, in a process of its own.  Nothing of ours is used.

    python export_runtime.py MODEL.onnx INPUTS.npz THREADS

It says when it has loaded the file.  For each line `run BATCH SECONDS` of its standard input it
runs that many records for so long, and once at least, and prints the seconds of a run; for
`save BATCH OUT.npz` it writes the outputs.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime as ort

DTYPES: dict[str, Any] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
}


def main() -> None:
    path, inputs, threads = sys.argv[1:]
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    with np.load(inputs) as stored:
        arrays = [stored[name] for name in stored]
    wanted = session.get_inputs()
    print(json.dumps({"inputs": [value.name for value in wanted]}), flush=True)
    feeds = {
        value.name: array.astype(DTYPES[value.type])
        for value, array in zip(wanted, arrays, strict=True)
    }
    for line in sys.stdin:
        command, batch, argument = line.split(maxsplit=2)
        given = {name: array[: int(batch)] for name, array in feeds.items()}
        if command == "save":
            np.savez(argument.strip(), *session.run(None, given))
            print(json.dumps({}), flush=True)
        else:
            print(json.dumps({"seconds": measure(session, given, float(argument))}), flush=True)


def measure(
    session: ort.InferenceSession, given: dict[str, np.ndarray[Any, Any]], seconds: float
) -> float:
    """The median of the runs."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    while not took or time.perf_counter() < end:
        begin = time.perf_counter()
        session.run(None, given)
        took.append(time.perf_counter() - begin)
    return float(np.median(took))


if __name__ == "__main__":
    main()
