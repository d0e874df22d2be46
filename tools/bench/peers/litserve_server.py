"""LitServe: JSON in, raw bytes out, batches of up to 8 that wait at most a millisecond."""

import sys

import litserve
import numpy as np
from fastapi import Response
from hosted import Model


class Hosted(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.model = Model()

    def decode_request(self, request: dict) -> np.ndarray:
        return np.asarray(request["tokens"], np.int32)

    def predict(self, tokens: np.ndarray) -> np.ndarray:
        return self.model.run(tokens)

    def batch(self, inputs: list[np.ndarray]) -> np.ndarray:
        return np.stack(inputs)

    def unbatch(self, output: np.ndarray) -> list[np.ndarray]:
        return list(output)

    def encode_response(self, output: np.ndarray) -> Response:
        return Response(output.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    api = Hosted(max_batch_size=8, batch_timeout=0.001, api_path="/call")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="error",
        access_log=False,
    )
