"""What the examples take and give, which needs none of their weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.types import concrete
from sexpgpu.export.initial import write_initial
from sexpgpu.export.language.alone import Alone, trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.passes.independence import prove_independence
from sexpgpu.export.subject import from_checkpoint
from support.real import EXAMPLES

TINY = EXAMPLES / "tiny.sx"


def alone(path: Path) -> Alone:
    return trace_alone(compile_program(path))


def record_types(model: Alone) -> tuple[dict[str, str], dict[str, str]]:
    """Inputs and outputs for one record."""
    graph = model.graph
    inputs = {v.name: f"{list(concrete(v.type.shape, 1))} {v.type.dtype}" for v in graph.inputs}
    outputs = {
        name: f"{list(concrete(v.type.shape, 1))} {v.type.dtype}"
        for name, v in graph.outputs.items()
    }
    return inputs, outputs


INTERFACES = {
    "tiny": ({"inputs": "[1, 16] i32"}, {"output": "[1, 16, 32] f32"}),
    "minilm": (
        {"inputs.0": "[1, 128] i32", "inputs.1": "[1, 128] bool"},
        {"hidden": "[1, 128, 384] f32", "embedding": "[1, 384] f32"},
    ),
    "smollm2": ({"inputs": "[1, 128] i32"}, {"output": "[1, 128, 49152] f32"}),
    "gpt2": ({"inputs": "[1, 128] i32"}, {"output": "[1, 128, 50257] f32"}),
    "llama3": ({"inputs": "[1, 128] i32"}, {"output": "[1, 128, 8192] f32"}),
    "gemma": ({"inputs": "[1, 128] i32"}, {"output": "[1, 128, 8192] f32"}),
    "mixtral": ({"inputs": "[1, 128] i32"}, {"output": "[1, 128, 8192] f32"}),
    "t5": (
        {"inputs.0": "[1, 128] i32", "inputs.1": "[1, 128] bool"},
        {"output": "[1, 128, 512] f32"},
    ),
    "whisper": ({"inputs": "[1, 80, 3000] f32"}, {"output": "[1, 1500, 384] f32"}),
    "mamba": ({"inputs": "[1, 64] i32"}, {"output": "[1, 64, 1024] f32"}),
    "rwkv": ({"inputs": "[1, 64] i32"}, {"output": "[1, 64, 1024] f32"}),
    "gcn": (
        {"inputs.0": "[1, 64, 32] f32", "inputs.1": "[1, 2, 256] i32", "inputs.2": "[1, 256] bool"},
        {"output": "[1, 64, 7] f32"},
    ),
    "dlrm": (
        {"inputs.0": "[1, 13] f32", "inputs.1": "[1, 26, 4] i32", "inputs.2": "[1, 26, 4] bool"},
        {"output": "[1] f32"},
    ),
    "mlp": ({"inputs": "[1, 28, 28] f32"}, {"output": "[1, 10] f32"}),
    "fracast": (
        {"inputs.0": "[1, 2048] f32", "inputs.1": "[1, 2048] bool"},
        {"output": "[1, 48, 9] f32"},
    ),
    "rxnmapper": (
        {"inputs.0": "[1, 128] i32", "inputs.1": "[1, 128] bool"},
        {"hidden": "[1, 128, 256] f32", "attention": "[1, 128, 128] f32"},
    ),
    "shakespeare": ({"inputs": "[1, 64] i32"}, {"output": "[1, 64, 84] f32"}),
    "lstm": ({"inputs": "[1, 64] i32"}, {"output": "[1, 64, 84] f32"}),
    "g2p": ({"inputs.0": "[1, 32] i32", "inputs.1": "[1] i32"}, {"output": "[1, 256] f32"}),
    "resemblyzer": ({"inputs": "[1, 160, 40] f32"}, {"output": "[1, 256] f32"}),
    "e2k": (
        {"inputs.0": "[1, 32] i32", "inputs.1": "[1] i32"},
        {"keys": "[1, 4, 32, 64] f32", "values": "[1, 4, 32, 64] f32"},
    ),
    "textgenrnn": ({"inputs": "[1, 40] i32"}, {"output": "[1, 465] f32"}),
    "digits": ({"inputs": "[1, 1, 8, 8] f32"}, {"output": "[1, 10] f32"}),
    "minilm-finetune": (
        {"inputs.0": "[1, 32] i32", "inputs.1": "[1, 32] bool"},
        {"output": "[1, 4] f32"},
    ),
    "resnet50": ({"inputs": "[1, 3, 224, 224] f32"}, {"output": "[1, 1000] f32"}),
    "vit": ({"inputs": "[1, 3, 224, 224] f32"}, {"output": "[1, 1000] f32"}),
    "convnext": ({"inputs": "[1, 3, 224, 224] f32"}, {"output": "[1, 1000] f32"}),
    "unet": ({"inputs": "[1, 1, 128, 128] f32"}, {"output": "[1, 2, 128, 128] f32"}),
    "dit": (
        {"inputs.0": "[1, 4, 32, 32] f32", "inputs.1": "[1] f32", "inputs.2": "[1] i32"},
        {"output": "[1, 8, 32, 32] f32"},
    ),
    "efficientnet-lite0": ({"inputs": "[1, 3, 224, 224] f32"}, {"output": "[1, 1000] f32"}),
}


def test_every_example_is_here() -> None:
    assert sorted(INTERFACES) == sorted(path.stem for path in EXAMPLES.glob("*.sx"))


@pytest.mark.parametrize("name", INTERFACES)
def test_interface(name: str) -> None:
    assert record_types(alone(EXAMPLES / f"{name}.sx")) == INTERFACES[name]


@pytest.mark.parametrize("name", INTERFACES)
def test_records_stay_apart(name: str) -> None:
    assert prove_independence(alone(EXAMPLES / f"{name}.sx").graph).independent


@pytest.mark.parametrize(
    ("name", "parameters", "elements"),
    # transformers' BERT without its pooler; Llama with its head tied, as their papers count
    [("minilm", 101, 22_565_376), ("smollm2", 272, 134_515_008)],
)
def test_every_parameter_has_a_key_of_its_own(name: str, parameters: int, elements: int) -> None:
    model = alone(EXAMPLES / f"{name}.sx")
    assert len({p.key for p in model.parameters.values()}) == parameters
    assert sum(p.elements for p in model.parameters.values()) == elements
    assert all(p.frozen for p in model.parameters.values())


def test_tiny_trains() -> None:
    run = compile_program(TINY).run
    assert run is not None
    assert (run.steps, run.batch, run.ema, run.checkpoint_every) == (20, 8, 0.99, 20)


def test_tiny_reads_no_later_symbol(tmp_path: Path) -> None:
    """The row of a position is that of any text with the same beginning."""
    write_initial(TINY, str(tmp_path / "run"), step=20)
    subject = from_checkpoint(str(tmp_path / "run"), trained=False)
    export_model(subject, tmp_path / "export", ExportOptions())
    session = Session(tmp_path / "export" / "model.onnx")
    tokens = np.random.default_rng(0).integers(0, 32, (1, 16)).astype(np.int32)
    changed = tokens.copy()
    changed[0, 8:] = (changed[0, 8:] + 1) % 32
    first, second = (session.run({"inputs": x})["output"] for x in (tokens, changed))
    np.testing.assert_array_equal(first[0, :8], second[0, :8])
    assert (first[0, 8:] != second[0, 8:]).any(-1).all()


def test_the_page_of_examples_has_each_program_once() -> None:
    listed = re.findall(r"^\| \[(\S+)\]\(\1\.sx\) \|", (EXAMPLES / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(path.stem for path in EXAMPLES.glob("*.sx"))
