"""From a page of `.sx` to a portable ONNX artifact: the language, the graph, its passes, ONNX."""
