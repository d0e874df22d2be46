"""FastAPI and uvicorn: an asynchronous handler that runs one call at a time."""

import sys

import uvicorn
from fastapi import FastAPI, Request, Response
from hosted import Model

app = FastAPI()
model = Model()


@app.post("/call")
async def call(request: Request) -> Response:
    (answer,) = model.run_bytes([await request.body()])
    return Response(answer, media_type="application/octet-stream")


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
