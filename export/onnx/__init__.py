"""The graph as an ONNX file: lowering, writing, and checking what was written."""
