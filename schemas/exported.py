"""The names of the files that an export consists of."""

MODEL = "model.json"
WEIGHTS = "params.safetensors"
ONNX = "model.onnx"
