"""ONNX files that others made, out of their packages: the answers are ONNX Runtime's own bits.

Through the library in batches and through the command's socket, beside a session of the file itself
that runs each record alone; or beside copies of itself, where runs are said to be padded, as on a
busy machine they may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.serve import load
from sexpgpu.tools.fetch_models import fetch_model
from support.serving import pack, serve_process

pytestmark = pytest.mark.real


@dataclass
class Real:
    """A file, the sizes that its user fixes, and for its inputs what fills one record.

    `axes` say where the batch is that is not first; `batches` whether calls run together at all.
    """

    model: str
    file: str
    fill: dict[str, Any] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)
    why_one: str = ""


REAL = [
    Real("magika", "model.onnx", {"bytes": lambda g, shape: g.integers(0, 257, shape)}),
    Real("basic-pitch", "model.onnx"),
    Real("open-nsfw", "model.onnx"),
    Real(
        "rapidocr",
        "detect.onnx",
        dimensions={"p2o.DynamicDimension.1": 64, "p2o.DynamicDimension.2": 96},
    ),
    Real("rapidocr", "recognize.onnx", dimensions={"x.2": 48, "p2o.DynamicDimension.1": 64}),
    Real("rapidocr", "classify.onnx", dimensions={"x.2": 48, "x.3": 64}),
    Real("silero-vad", "half.onnx", dimensions={"sequence": 576}, axes={"state": 1, "stateN": 1}),
    Real(
        "silero-vad",
        "ifless.onnx",
        {"sr": lambda g, shape: np.array(16000)},
        {"sequence": 576},
        {"state": 1, "stateN": 1},
        "`sr` has no axis of records",
    ),
    Real(
        "silero-vad",
        "model.onnx",
        {"sr": lambda g, shape: np.array(16000)},
        {"input.1": 576, "state.1": 1, "stateN.0": 2, "stateN.1": 1, "stateN.2": 128},
        why_one="`state` has no axis of records",
    ),
]


def record(real: Real, specs: Any, seed: int) -> list[Array]:
    generator = np.random.default_rng(seed)
    found = []
    for spec in specs:
        fill = real.fill.get(spec.name, lambda g, shape: g.standard_normal(shape))
        found.append(np.asarray(fill(generator, spec.shape)).astype(spec.dtype.numpy))
    return found


@pytest.mark.parametrize("real", REAL, ids=lambda real: f"{real.model}/{real.file}")
def test_answers_are_those_of_the_runtime_alone(real: Real, tmp_path: Path) -> None:
    path = fetch_model(real.model)[real.file]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    with load(str(path), device="cpu", dimensions=real.dimensions, batch=4) as model:
        records = [record(real, model.inputs, seed) for seed in range(5)]
        names = [spec.name for spec in model.inputs]
        outputs = [spec.name for spec in model.outputs]
        want = [_run(session, names, outputs, one, model.about) for one in records]
        assert real.why_one in model.about["batch"].get("why_one", "")
        alone = [_by_name(outputs, model(*one)) for one in records]
        _equal(alone, want)
        if not real.why_one and not real.axes:
            many = [np.concatenate(column) for column in zip(*records, strict=True)]
            together = _by_name(outputs, model(*many))
            parts = [
                {
                    name: array[i * spec.shape[0] : (i + 1) * spec.shape[0]]
                    for (name, array), spec in zip(together.items(), model.outputs, strict=True)
                }
                for i in range(5)
            ]
            _equal(parts, want)
        specs = model.inputs, model.outputs
    flags = [f"--dim={name}={size}" for name, size in real.dimensions.items()]
    with (
        serve_process(path, tmp_path / "s", "--device=cpu", "--batch=4", *flags) as server,
        server.connect(60) as wire,
    ):
        assert [tensor["name"] for tensor in wire.about["inputs"]] == names
        for one in records:
            answer = wire.call(pack(specs[0], one))
            assert answer[:1] == b"\0", answer[1:].decode()
            expected = _run(session, names, outputs, one, wire.about)
            assert answer[1:] == b"".join(expected[spec.name].tobytes() for spec in specs[1])


def _run(
    session: ort.InferenceSession,
    names: list[str],
    outputs: list[str],
    one: list[Array],
    about: dict[str, Any],
) -> dict[str, Array]:
    """The runtime's answer to a record: alone, or where runs are padded, to copies of it."""
    copies = about["batch"]["limit"] if about["batch"]["padded"] else 1
    many = [np.concatenate([array] * copies) if copies > 1 else array for array in one]
    found = session.run(outputs, dict(zip(names, many, strict=True)))
    return {
        name: array[: len(array) // copies] if copies > 1 else array
        for name, array in zip(outputs, found, strict=True)
    }


def _by_name(outputs: list[str], answer: Any) -> dict[str, Array]:
    return answer if isinstance(answer, dict) else {outputs[0]: answer}


def _equal(found: list[dict[str, Array]], want: list[dict[str, Array]]) -> None:
    for one, other in zip(found, want, strict=True):
        for name, array in other.items():
            assert one[name].shape == array.shape, name
            assert one[name].tobytes() == array.tobytes(), name
