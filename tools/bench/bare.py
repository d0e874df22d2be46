"""ONNX Runtime in a process of one's own: what a server is compared with.  Nothing of ours is used.

    python bare.py MODEL.onnx RECORD.bin

It answers one record and says so; then for each line `BATCH SECONDS` of its standard input it runs
batches in bound buffers for so long, and prints calls, seconds, p50_us and p99_us of a run.
"""

import json
import sys
import time

import numpy as np
import onnxruntime as ort


def main() -> None:
    path, record = sys.argv[1:]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0].name
    made = session.get_outputs()[0].name
    tokens = np.fromfile(record, np.int32)[None]
    (logits,) = session.run([made], {given: tokens})
    print(json.dumps({"first": float(logits.ravel()[0])}), flush=True)
    bindings = {}
    for line in sys.stdin:
        size, seconds = line.split()
        batch = int(size)
        if batch not in bindings:
            binding = session.io_binding()
            inputs = ort.OrtValue.ortvalue_from_numpy(np.repeat(tokens, batch, 0))
            outputs = ort.OrtValue.ortvalue_from_numpy(np.repeat(logits, batch, 0))
            binding.bind_ortvalue_input(given, inputs)
            binding.bind_ortvalue_output(made, outputs)
            bindings[batch] = binding, inputs, outputs
        print(json.dumps(measure(session, bindings[batch][0], batch, float(seconds))), flush=True)


def measure(
    session: ort.InferenceSession, binding: ort.IOBinding, batch: int, seconds: float
) -> dict[str, float]:
    """Runs one after another, each timed."""
    run, clock = session.run_with_iobinding, time.perf_counter_ns
    for _ in range(3):
        run(binding)
    took = []
    begin = before = clock()
    end = begin + int(seconds * 1e9)
    while before < end:
        run(binding)
        after = clock()
        took.append(after - before)
        before = after
    p50, p99 = np.percentile(took, (50, 99)) / 1e3
    return {
        "calls": len(took) * batch,
        "seconds": (before - begin) / 1e9,
        "p50_us": float(p50),
        "p99_us": float(p99),
    }


if __name__ == "__main__":
    main()
