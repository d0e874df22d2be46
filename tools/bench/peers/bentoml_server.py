"""BentoML: JSON in and out, adaptive batches of up to 8."""

import os
import sys

import bentoml
import numpy as np
from hosted import Model


@bentoml.service(workers=1, logging={"access": {"enabled": False}}, metrics={"enabled": False})
class Hosted:
    def __init__(self) -> None:
        self.model = Model()

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=1000, route="/call")
    def logits(self, tokens: np.ndarray) -> np.ndarray:
        return self.model.run(tokens.astype(np.int32))


if __name__ == "__main__":
    options = ["--host", "127.0.0.1", "--port", sys.argv[1]]
    command = [sys.executable, "-m", "bentoml", "serve", "bentoml_server:Hosted", *options]
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    os.execv(sys.executable, command)
