"""What every peer hosts: the exported file with one ONNX Runtime thread."""

import os

import numpy as np
import onnxruntime as ort


class Model:
    """Runs records, given as [batch, window] i32."""

    def __init__(self, path: str | None = None) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(
            path or os.environ["BENCH_MODEL"], options, providers=["CPUExecutionProvider"]
        )
        self.given = self.session.get_inputs()[0].name
        self.made = [self.session.get_outputs()[0].name]

    def run(self, tokens: np.ndarray) -> np.ndarray:
        """The logits, [batch, window, vocabulary] f32."""
        return self.session.run(self.made, {self.given: tokens})[0]

    def run_bytes(self, bodies: list[bytes]) -> list[bytes]:
        """The same from raw bytes to raw bytes, a record each."""
        tokens = np.stack([np.frombuffer(body, np.int32) for body in bodies])
        return [logits.tobytes() for logits in self.run(tokens)]
