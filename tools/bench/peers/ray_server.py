"""Ray Serve: raw bytes in and out, batches of up to 8 that wait at most a millisecond."""

import sys
import threading

import ray
from hosted import Model
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 1})
class Hosted:
    def __init__(self) -> None:
        self.model = Model()

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.001)
    async def run(self, bodies: list[bytes]) -> list[bytes]:
        return self.model.run_bytes(bodies)

    async def __call__(self, request: Request) -> Response:
        answer = await self.run(await request.body())
        return Response(answer, media_type="application/octet-stream")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1]), "access_log": False})
    serve.run(Hosted.bind(), route_prefix="/call")
    threading.Event().wait()
