"""The weights of an ONNX file that stand in files beside it.

ONNX Runtime finds those of a file that it opens itself, follows links, and refuses what leaves the
file's folder.  Of a graph that was changed, which it gets as bytes, it knows the one folder that it
is told, and takes a link for a way out: a cache of models that is made of links has many.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from sexpgpu.serve.rewriting import bodies


def name_targets(model: onnx.ModelProto, path: Path) -> str:
    """Names the weights' files where the links lead, seen from the folder that is given back.

    The file `path` itself may be a link.  What leaves the folder stays as it is, to be refused.
    """
    home = path.resolve().parent
    places = [
        entry
        for tensor in _tensors(model.graph)
        for entry in tensor.external_data
        if entry.key == "location"
    ]
    for entry in places:
        try:
            target = (path.absolute().parent / entry.value).resolve()
        except (OSError, ValueError, RuntimeError):
            # It is no path, or its links lead round in a circle.
            continue
        if target.is_relative_to(home):
            entry.value = str(target.relative_to(home))
    return str(home)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Those that are outside, of control flow's bodies too."""
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor
    for node in graph.node:
        for attribute in node.attribute:
            for body in bodies(attribute):
                yield from _tensors(body)
