"""MLServer: the V2 protocol in JSON, batches of up to 8 that wait at most a millisecond."""

import asyncio
import sys

import numpy as np
from hosted import Model
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Hosted(MLModel):
    async def load(self) -> bool:
        self.model = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        (given,) = payload.inputs
        tokens = np.asarray(given.data, np.int32).reshape(given.shape)
        logits = self.model.run(tokens)
        output = ResponseOutput(
            name="logits", shape=list(logits.shape), datatype="FP32", data=logits.ravel().tolist()
        )
        return InferenceResponse(model_name=self.name, outputs=[output])


async def main() -> None:
    port = int(sys.argv[1])
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
        parallel_workers=0,
        debug=False,
    )
    hosted = ModelSettings(
        name="bench", implementation=Hosted, max_batch_size=8, max_batch_time=0.001
    )
    await MLServer(settings).start([hosted])


if __name__ == "__main__":
    asyncio.run(main())
