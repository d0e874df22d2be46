"""Exports for tests: a program's text into a checkpoint of its first step, and that into files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sexpgpu.export.artifact import Exported, ExportOptions, export_model
from sexpgpu.export.graph.document import ModelFile, read_model
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.initial import write_initial
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.subject import from_checkpoint
from sexpgpu.schemas.tensor_file import MappedTensors
from support.architectures import ARCHITECTURES
from support.programs import GPT


def _model(fields: str, parts: str, arguments: str, body: str) -> str:
    return f"""
(def record (fields {fields}))
(defmodel net () (parts {parts}) (apply ({arguments}) {body}))
(def model (net))
"""


#: Programs with what an artifact can hold.
MODELS: dict[str, str] = {
    "gpt": GPT,
    "lstm": ARCHITECTURES["lstm"],
    "scan": ARCHITECTURES["scan"],
    "experts": ARCHITECTURES["experts"],
    "several outputs": ARCHITECTURES["several outputs"],
    "mask as an input": ARCHITECTURES["mask as an input"],
    "convolutions": _model(
        ":image (list f32 3 16 16)",
        "c1 (conv2d 3 8 3 :padding 1) n1 (batch-norm 8) c2 (conv2d 8 16 3 :stride 2 :padding 1) "
        "g (group-norm 4 16) head (linear 16 10)",
        "x",
        "(let (x (max-pool (relu (n1 (c1 x))) :size 2) x (mean (silu (g (c2 x))) :axis (list 2 3)))"
        " (list :logits (head x) :features x))",
    ),
    "every dtype": _model(
        ":a (list f32 4) :b (list f64 4) :c (list bf16 4) :d (list i32 4) :e (list i64 4) "
        ":f (list bool 4)",
        "w (param (list 4) :dtype bf16 :init (normal 1.0)) v (param (list 4) :dtype f64) "
        "n (param (list 4) :dtype i64 :init (ones))",
        "a b c d e f",
        "(list :a (exp a) :b (* v (sin b)) :c (+ c w) :d (* d 3) :e (+ e n) :f (logical-not f) "
        ":mixed (+ (cast c f32) (where f a (cast d f32))))",
    ),
    "inputs and weights as outputs": _model(
        ":a (list f32 4) :b (list i32 4)",
        "w (param (list 3) :init (normal 1.0))",
        "a b",
        "(let (y (tanh a)) (list :same a :also a :weight w :once y :twice y :limit (ones (list 2)) "
        ":whole b))",
    ),
    "no elements": _model(
        ":a (list f32 0 4) :b (list f32 3)",
        "w (param (list 0 4))",
        "a b",
        "(list :empty (+ a w) :none (slice b :axis 1 :to 0) :sum (sum a :axis 1) :b (+ b 1.0))",
    ),
    "no weights": _model(":a (list f32 4)", "", "a", "(softmax a)"),
    "tied weights": _model(
        ":tokens (list i32 6)",
        "table (param (list 50 8) :init (normal 1.0)) w (linear 8 8)",
        "t",
        "(matmul (tanh (w (take table t))) (transpose table))",
    ),
    "a model used twice": _model(
        ":a (list f32 8)", "w (linear 8 8) v w", "a", "(v (relu (w (v a))))"
    ),
}


def checkpoint(text: str, directory: Path, **options: Any) -> str:
    """The location of a checkpoint of the program's first step, beside its file `program.sx`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "program.sx"
    path.write_text(text)
    location = str(directory / "run")
    write_initial(path, location, **options)
    return location


def export(text: str, directory: Path, out: str = "export", **options: Any) -> Exported:
    """An export of the program's first step, in `<directory>/export`."""
    location = str(directory / "run")
    if not Path(location).exists():
        checkpoint(text, directory)
    subject = from_checkpoint(location, trained=True)
    return export_model(subject, directory / out, ExportOptions(**options))


def load(directory: Path) -> tuple[ModelFile, dict[str, Array], onnx.ModelProto]:
    """What an export holds: the model, its weights in its dtypes, and the ONNX graph."""
    model = read_model((directory / "model.json").read_bytes(), "model.json")
    with MappedTensors(directory / "params.safetensors") as tensors:
        weights = {
            name: np.array(tensors.tensor(name)).astype(value.type.dtype.numpy)
            for name, value in model.graph.weights.items()
        }
        assert set(tensors) == set(weights)
    return model, weights, onnx.load_model(str(directory / "model.onnx"), load_external_data=False)


def agrees(directory: Path, inputs: Mapping[str, Array], tolerance: float = 1e-5) -> None:
    """The ONNX file gives for the inputs what model.json means."""
    model, weights, _ = load(directory)
    want = evaluate(model.graph, inputs, weights)
    found = Session(directory / "model.onnx").run(inputs)
    assert list(found) == list(want)
    for name, array in want.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(
            found[name].astype(np.float64),
            array.astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
        )
