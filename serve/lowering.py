"""From a model as a typed graph to what is hosted: shaped by the flags, lowered, its limits found.

Only this part of serving needs the compiler; from what was prepared before, it is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.bounds import UNLIMITED, index_limits
from sexpgpu.export.graph.document import ModelFile, read_model
from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.graph.types import Array, DType, concrete
from sexpgpu.export.onnx.build import BuildOptions, ExternalTensor, build_model
from sexpgpu.export.passes.at import INPUT as AT
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fold import fold_constants
from sexpgpu.export.passes.independence import prove_independence
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.export.passes.prune import select_outputs
from sexpgpu.export.storage.checkpoint import StoredCheckpoint
from sexpgpu.export.subject import from_stored
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.exported import MODEL, WEIGHTS
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.serve.hosted import Hosted, Limits, Shaping
from sexpgpu.serve.protocol import TensorSpec
from sexpgpu.serve.steady import make_steady


def host_export(path: Path, document: bytes, tensors: MappedTensors, shaping: Shaping) -> Hosted:
    """An export, from its model.json and its weights.

    Raises what `host_model` raises, E-CKPT-003 where it lacks a weight.
    """
    model = read_model(document, str(path / MODEL))
    for name, value in model.graph.weights.items():
        entry = tensors.entry(name) if name in tensors else None
        if entry is None or entry.shape != concrete(value.type.shape, 1):
            raise SexpgpuError(
                "E-CKPT-003",
                f"the export lacks the weight `{name}` that its model reads",
                place=str(path / WEIGHTS),
                came=str(list(entry.shape)) if entry else None,
                expected=str(value.type),
            )
    return host_model(model, tensors.tensor, str(path), shaping, tensors)


def host_checkpoint(stored: StoredCheckpoint, file: MappedTensors, shaping: Shaping) -> Hosted:
    """A checkpoint, `file` the first of its files of tensors.

    Raises what `from_stored` and `host_model` raise.
    """
    subject = from_stored(stored, trained=shaping.trained)
    return host_model(subject.model, subject.read, subject.origin, shaping, file)


def host_model(
    model: ModelFile,
    read: Callable[[str], Array],
    place: str,
    shaping: Shaping,
    file: MappedTensors | None = None,
) -> Hosted:
    """A model as a typed graph, `read` giving its weights by path.

    Those that stand in `file` ONNX Runtime reads there by itself: what is handed to it, it copies.
    Raises E-EXPORT-002 and -003 where it cannot be shaped so.
    """
    graph = model.graph
    if shaping.outputs:
        graph = select_outputs(graph, shaping.outputs)
    if shaping.at:
        graph = gather_at(graph)
    precision = shaping.precision or model.precision
    lowered = fold_constants(set_precision(graph, precision))
    proto, paths = _build(make_steady(lowered), read, file)
    verdict = prove_independence(graph)
    return Hosted(
        place=place,
        model=proto,
        weights={name: _contiguous(read(path)) for name, path in paths.items()},
        weight_paths=paths,
        inputs=tuple(
            TensorSpec(v.name, concrete(v.type.shape, 1), v.type.dtype) for v in graph.inputs
        ),
        outputs=tuple(
            TensorSpec(name, concrete(v.type.shape, 1), v.type.dtype)
            for name, v in graph.outputs.items()
        ),
        limits=find_limits(graph),
        obstacle="" if verdict.independent else verdict.reason,
        checkpoint=model.checkpoint or place,
        step=model.step,
        slug=model.slug,
        precision=precision,
        folder=str(file.path.resolve().parent) if file else "",
    )


def find_limits(graph: Graph) -> dict[str, Limits]:
    """What each input of indices may hold; negative ones count from the end, but not in `at`."""
    certain = index_limits(graph, certain=True)
    if any(value.name == AT for value in graph.inputs):
        # It is chosen where it is in range, which makes nothing certain.
        certain |= {AT: index_limits(graph, certain=False)[AT]}
    found = {}
    for name, elements in certain.items():
        high = int(elements.min())
        each = () if (elements == high).all() else np.where(elements < UNLIMITED, elements, 0)
        low = 0 if name == AT else -high
        found[name] = Limits(low, high, tuple(int(limit) for limit in np.ravel(each)))
    return found


def _build(
    graph: Graph, read: Callable[[str], Array], file: MappedTensors | None
) -> tuple[bytes, dict[str, str]]:
    """The ONNX graph, and by the names of initializers the paths of weights outside of the file."""
    mark = "weight:"

    def outside(path: str) -> ExternalTensor:
        array = read(path)
        dtype = DType.of(array)
        # What a BOOL holds is looked at each time.
        if file is not None and path in file and array.nbytes and dtype is not DType.BOOL:
            entry = file.entry(path)
            return ExternalTensor(file.path.resolve().name, entry.offset, entry.nbytes, dtype)
        return ExternalTensor(mark + path, 0, array.nbytes, dtype)

    model = build_model(graph, outside, BuildOptions())
    paths = {
        initializer.name: entry.value.removeprefix(mark)
        for initializer in model.graph.initializer
        for entry in initializer.external_data
        if entry.key == "location" and entry.value.startswith(mark)
    }
    return model.SerializeToString(), paths


def _contiguous(array: Array) -> Array:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
