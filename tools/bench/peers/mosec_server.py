"""Mosec: raw bytes in and out, batches of up to 8 that wait at most a millisecond."""

import sys

from hosted import Model
from mosec import Server, Worker


class Hosted(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        return self.model.run_bytes(data)


if __name__ == "__main__":
    port = sys.argv[1]
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", port, "--log-level", "error"]
    server = Server()
    server.append_worker(Hosted, num=1, max_batch_size=8, max_wait_time=1)
    server.run()
