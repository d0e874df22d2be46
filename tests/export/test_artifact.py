"""Exports: what is in them, that they are the same every time, and that they are whole."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from sexpgpu.export import artifact
from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.types import DType, concrete
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.subject import from_checkpoint
from sexpgpu.schemas.errors import SexpgpuError
from support.commands import environment
from support.exports import MODELS, agrees, checkpoint, export, load
from support.programs import GPT

FILES = ["model.json", "model.onnx", "params.safetensors"]


def inputs_of(directory: Path, batch: int = 1) -> dict[str, Any]:
    """Numbers that every model of MODELS takes."""
    generator = np.random.default_rng(0)
    model, _, _ = load(directory)
    feeds: dict[str, Any] = {}
    for value in model.graph.inputs:
        shape, dtype = concrete(value.type.shape, batch), value.type.dtype
        if dtype is DType.BOOL:
            feeds[value.name] = generator.random(shape) < 0.5
        elif dtype.is_integer:
            feeds[value.name] = generator.integers(0, 12, shape).astype(dtype.numpy)
        else:
            feeds[value.name] = generator.normal(size=shape).astype(dtype.numpy)
    return feeds


def operators(proto: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in proto.graph.node}


# What is in it


@pytest.mark.parametrize("name", MODELS)
def test_an_export_is_whole_and_right(name: str, tmp_path: Path) -> None:
    exported = export(MODELS[name], tmp_path)
    directory = exported.directory
    assert sorted(p.name for p in directory.iterdir()) == FILES
    assert exported.files == {file: (directory / file).stat().st_size for file in FILES}
    onnx.checker.check_model(str(directory / "model.onnx"), full_check=True)
    assert exported.verification is not None
    # A weight that is an output is the same for every record, so that records are not apart.
    assert exported.verification.runs == (5 if name == "inputs and weights as outputs" else 2)
    model, _, proto = load(directory)
    assert [value.name for value in proto.graph.input] == [v.name for v in model.graph.inputs]
    assert [value.name for value in proto.graph.output] == list(model.graph.outputs)
    assert [entry.version for entry in proto.opset_import] == [18]
    assert proto.ir_version == 8
    for batch in (1, 3):
        agrees(directory, inputs_of(directory, batch))


def test_what_the_files_say_of_their_origin(tmp_path: Path) -> None:
    location = checkpoint(GPT, tmp_path, step=20)
    export(GPT, tmp_path)
    model, _, proto = load(tmp_path / "export")
    assert (model.checkpoint, model.step, model.slug) == (
        f"{location}/step-00000020",
        20,
        "program",
    )
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    weights = (tmp_path / "export" / "params.safetensors").read_bytes()
    assert metadata.pop("sexpgpu.producer").startswith("sexpgpu")
    assert metadata == {
        "sexpgpu.checkpoint": f"{location}/step-00000020",
        "sexpgpu.step": "20",
        "sexpgpu.slug": "program",
        "sexpgpu.precision": "f32",
        "sexpgpu.weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    assert proto.producer_name == "sexpgpu"


def test_nodes_are_named_by_part_and_say_their_line(tmp_path: Path) -> None:
    export(GPT, tmp_path)
    _, _, proto = load(tmp_path / "export")
    (gather,) = [node for node in proto.graph.node if node.op_type == "Gather"]
    assert gather.name == "take/Gather"
    line = GPT.split("\n").index(next(x for x in GPT.split("\n") if "take tok" in x)) + 1
    assert f"program.sx:{line}:" in gather.doc_string
    norms = [node.name for node in proto.graph.node if node.op_type == "LayerNormalization"]
    assert norms == [
        "blocks.0.norm-1/layer-normalize/LayerNormalization",
        "blocks.0.norm-2/layer-normalize/LayerNormalization",
        "blocks.1.norm-1/layer-normalize/LayerNormalization",
        "blocks.1.norm-2/layer-normalize/LayerNormalization",
        "norm/layer-normalize/LayerNormalization",
    ]
    assert all(node.doc_string for node in proto.graph.node if node.name.startswith("blocks"))


def test_weights_stand_once(tmp_path: Path) -> None:
    for name in ("tied weights", "a model used twice", "gpt"):
        export(MODELS[name], tmp_path / name)
        directory = tmp_path / name / "export"
        _, weights, proto = load(directory)
        places = {
            tuple((e.key, e.value) for e in tensor.external_data)
            for tensor in proto.graph.initializer
            if tensor.external_data
        }
        assert len(places) == len(weights)
        assert all(("location", "params.safetensors") in place for place in places)
        constants = [t for t in proto.graph.initializer if not t.external_data]
        assert sum(len(t.raw_data) for t in constants) < 2000
        outputs = {value.name for value in proto.graph.output}
        for node in proto.graph.node:
            if node.op_type == "Transpose" and set(node.input) & set(weights):
                (reader,) = (n for n in proto.graph.node if node.output[0] in n.input)
                assert (reader.op_type, set(reader.output) <= outputs) == ("MatMul", True)


_LOAD = """
import sys
from pathlib import Path
from sexpgpu.export.onnx.session import Session
def anonymous():
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024
Session(Path("small/model.onnx"))  # what the runtime itself takes
before = anonymous()
session = Session(Path(sys.argv[1]), threads=1, mapped=len(sys.argv) > 2)
print(anonymous() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it")
def test_tied_weights_stand_once_in_a_loaded_session(tmp_path: Path) -> None:
    tied = MODELS["tied weights"]
    export(tied, tmp_path, "small")
    export(tied.replace("50 8", "40000 256").replace("8 8", "256 256"), tmp_path / "large")
    table = 4 * 40_000 * 256
    for flags, most in (([], 1.2 * table), (["mapped"], 0.2 * table)):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                _LOAD,
                str(tmp_path / "large" / "export" / "model.onnx"),
                *flags,
            ],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) < most


# Its options


def test_output_leaves_out_what_others_need(tmp_path: Path) -> None:
    export(MODELS["several outputs"], tmp_path, outputs=("best",))
    model, weights, proto = load(tmp_path / "export")
    assert list(model.graph.outputs) == ["best"]
    assert not [path for path in weights if path.startswith("other")]
    assert [value.name for value in proto.graph.output] == ["best"]


def test_at_adds_the_last_input(tmp_path: Path) -> None:
    export(GPT, tmp_path, at=True)
    _, weights, proto = load(tmp_path / "export")
    assert [value.name for value in proto.graph.input] == ["inputs", "at"]
    assert [d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim] == [0, 1, 40]
    assert len(weights) == len(load(export(GPT, tmp_path, "whole").directory)[1])
    agrees(tmp_path / "export", inputs_of(tmp_path / "export", 2))


def test_precision_is_of_the_products(tmp_path: Path) -> None:
    export(GPT, tmp_path, precision="bf16")
    model, _, proto = load(tmp_path / "export")
    assert model.precision == "bf16"
    products = [n for n in proto.graph.node if n.op_type in ("MatMul", "Gemm")]
    makers = {name: node for node in proto.graph.node for name in node.output}
    for node in products:
        for name in node.input[:2]:
            assert makers[name].op_type == "Cast", "operands are rounded to bf16"
            assert makers[makers[name].input[0]].attribute[0].i == onnx.TensorProto.BFLOAT16
    norm = next(n for n in proto.graph.node if n.op_type == "LayerNormalization")
    assert norm.input[0] not in makers or makers[norm.input[0]].op_type != "Cast"
    # model.json says it once; its products are the model's.
    assert {n.attributes.get("precision", "f32") for n in model.graph.nodes} == {"f32"}


def test_target_cuda_multiplies_in_bf16_itself(tmp_path: Path) -> None:
    exported = export(GPT, tmp_path, precision="bf16", target="cuda")
    assert exported.verification is None
    assert exported.note == "not verified: products in bf16 need a CUDA device"
    _, _, proto = load(tmp_path / "export")
    inferred = onnx.shape_inference.infer_shapes(proto)
    kinds = {v.name: v.type.tensor_type.elem_type for v in inferred.graph.value_info}
    products = [n for n in proto.graph.node if n.op_type in ("MatMul", "Gemm")]
    assert products
    assert {kinds[n.output[0]] for n in products} == {onnx.TensorProto.BFLOAT16}
    exported = export(GPT, tmp_path, "f32", target="cuda")
    assert exported.verification is not None


@pytest.mark.parametrize("target", ["any", "cpu"])
def test_other_targets_emulate_it(target: Any, tmp_path: Path) -> None:
    exported = export(GPT, tmp_path, precision="bf16", target=target)
    assert exported.verification is not None


def test_weights_in_bf16_take_half(tmp_path: Path) -> None:
    whole = export(GPT, tmp_path, "whole")
    half = export(GPT, tmp_path, weights="bf16")
    assert half.weight_bytes * 2 == whole.weight_bytes
    _, weights, proto = load(half.directory)
    stored = {t.data_type for t in proto.graph.initializer if t.external_data}
    assert stored == {onnx.TensorProto.BFLOAT16}
    for path, array in load(whole.directory)[1].items():
        rounded = array.astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(weights[path], rounded)


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        *(("every dtype", opset) for opset in range(18, 26)),
        *((name, opset) for name in ("gpt", "convolutions", "lstm", "scan") for opset in (21, 25)),
    ],
)
def test_every_opset(name: str, opset: int, tmp_path: Path) -> None:
    export(MODELS[name], tmp_path, opset=opset)
    _, _, proto = load(tmp_path / "export")
    assert [entry.version for entry in proto.opset_import] == [opset]
    assert proto.ir_version == {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13}[opset]


def test_fused_uses_operators_that_are_younger(tmp_path: Path) -> None:
    export(GPT, tmp_path, profile="fused")
    _, _, proto = load(tmp_path / "export")
    assert [entry.version for entry in proto.opset_import] == [23]
    assert "Attention" in operators(proto)
    agrees(tmp_path / "export", inputs_of(tmp_path / "export", 2))
    export(GPT, tmp_path)
    assert not operators(load(tmp_path / "export")[2]) & {"Attention", "RMSNormalization", "Gelu"}


def test_a_fixed_batch(tmp_path: Path) -> None:
    export(GPT, tmp_path, batch=4)
    _, _, proto = load(tmp_path / "export")
    for value in (*proto.graph.input, *proto.graph.output):
        dimensions = value.type.tensor_type.shape.dim
        assert dimensions[0].dim_value == 4
        assert not any(d.dim_param for d in dimensions)
    agrees(tmp_path / "export", inputs_of(tmp_path / "export", 4))


def test_a_symbolic_batch_has_its_name(tmp_path: Path) -> None:
    export(GPT, tmp_path)
    _, _, proto = load(tmp_path / "export")
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize("name", ["gpt", "every dtype", "no elements"])
def test_embed_puts_the_weights_inside(name: str, tmp_path: Path) -> None:
    export(MODELS[name], tmp_path, embed=True)
    directory = tmp_path / "export"
    inputs = inputs_of(directory, 2)
    _, weights, proto = load(directory)
    assert not any(t.external_data for t in proto.graph.initializer)
    agrees(directory, inputs)
    assert set(weights) <= {t.name for t in proto.graph.initializer}
    alone = tmp_path / "alone.onnx"
    alone.write_bytes((directory / "model.onnx").read_bytes())
    Session(alone).run(inputs)


def test_weights_that_cannot_be_embedded_are_refused_before_they_are_read(
    tmp_path: Path,
) -> None:
    text = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts w (param (list 600000 1000)))
  (apply (x) (+ x (sum w))))
(def model (net))"""
    text = text.replace("(param (list 600000 1000))", "(param (list 4 4))")
    subject = from_checkpoint(checkpoint(text, tmp_path), trained=True)
    value = subject.model.graph.weights["w"]
    value.type = value.type.with_shape((600_000, 1000))
    subject.read = lambda path: pytest.fail("a weight was read")
    with pytest.raises(SexpgpuError) as caught:
        export_model(subject, tmp_path / "export", ExportOptions(embed=True))
    assert caught.value.code == "E-EXPORT-005"
    assert caught.value.came == "2,400,000,000 bytes"
    assert not (tmp_path / "export").exists()


def test_no_verify(tmp_path: Path) -> None:
    exported = export(GPT, tmp_path, verify=False)
    assert exported.verification is None
    assert exported.note == "not verified: --no-verify"


# What it refuses


def refused(code: str, directory: Path, text: str = GPT, **options: Any) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        export(text, directory, **options)
    assert caught.value.code == code
    assert not (directory / "export").exists()
    assert [p.name for p in directory.iterdir() if p.name.startswith(".")] == []
    return caught.value


def test_an_output_that_is_not_there(tmp_path: Path) -> None:
    assert "`logits`" in refused("E-EXPORT-002", tmp_path, outputs=("logits",)).message


def test_at_without_positions(tmp_path: Path) -> None:
    refused("E-EXPORT-003", tmp_path, MODELS["convolutions"], at=True)


@pytest.mark.parametrize(
    "options",
    [{"opset": 17}, {"opset": 26}, {"opset": 22, "profile": "fused"}],
)
def test_an_opset_that_there_is_not(options: Any, tmp_path: Path) -> None:
    error = refused("E-EXPORT-006", tmp_path, **options)
    assert str(options["opset"]) in error.message


def test_an_output_with_the_name_of_an_input(tmp_path: Path) -> None:
    text = """
(def record (fields :x (list f32 4)))
(defmodel net () (parts) (apply (x) (list :inputs (exp x) :more x)))
(def model (net))"""
    error = refused("E-EXPORT-007", tmp_path, text)
    assert "`inputs`" in error.message
    export(text, tmp_path, outputs=("more",))


def test_an_artifact_that_is_wrong_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tanh = type(all_operations()["gelu"])
    monkeypatch.setattr(
        tanh, "lower", lambda self, onnx, inputs, *_: [onnx.add("Tanh", inputs[0].name)]
    )
    error = refused("E-VERIFY-001", tmp_path)
    assert error.exit_code == 3
    assert export(GPT, tmp_path, verify=False).verification is None


def test_an_artifact_that_does_not_run_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tanh = type(all_operations()["gelu"])
    monkeypatch.setattr(
        tanh, "lower", lambda self, onnx, inputs, *_: [onnx.add("Det", inputs[0].name)]
    )
    refused("E-ONNX-002", tmp_path)
    refused("E-ONNX-002", tmp_path, verify=False)


def test_a_wrong_export_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(GPT, tmp_path)
    before = digest(tmp_path / "export")
    gelu = type(all_operations()["gelu"])
    monkeypatch.setattr(
        gelu, "lower", lambda self, onnx, inputs, *_: [onnx.add("Tanh", inputs[0].name)]
    )
    with pytest.raises(SexpgpuError):
        export(GPT, tmp_path)
    assert digest(tmp_path / "export") == before


def test_part_of_a_model_that_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = artifact.verify_model
    monkeypatch.setattr(
        artifact, "verify_model", lambda *given, **more: real(*given, **more, budget=0.0)
    )
    for number, options in enumerate(({}, {"embed": True}, {"batch": 2}, {"weights": "bf16"})):
        exported = export(GPT, tmp_path, str(number), **options)
        assert exported.verification is not None
        assert exported.verification.checked.startswith("the first 1 of ")
        assert sorted(p.name for p in exported.directory.iterdir()) == FILES


# The same every time


def digest(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
    }


@pytest.mark.parametrize("name", MODELS)
def test_the_same_bytes_twice(name: str, tmp_path: Path) -> None:
    first, second = (export(MODELS[name], tmp_path, out) for out in ("a", "b"))
    assert digest(first.directory) == digest(second.directory)
