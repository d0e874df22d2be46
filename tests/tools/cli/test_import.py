"""`sexpgpu import`: what it writes, and what it says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.commands import Run, runner

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 12,
    "model_type": "llama",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 11,
}
LAYER = {
    "input_layernorm": (8,),
    "post_attention_layernorm": (8,),
    "self_attn.q_proj": (8, 8),
    "self_attn.k_proj": (8, 8),
    "self_attn.v_proj": (8, 8),
    "self_attn.o_proj": (8, 8),
    "mlp.gate_proj": (12, 8),
    "mlp.up_proj": (12, 8),
    "mlp.down_proj": (8, 12),
}
SHAPES = {
    "model.embed_tokens.weight": (11, 8),
    "model.norm.weight": (8,),
    **{f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()},
}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands beside a directory with a small Llama."""
    monkeypatch.chdir(tmp_path)
    Path("tiny").mkdir()
    write(CONFIG)
    draw = np.random.default_rng(0).standard_normal
    weights = {name: draw(shape).astype(np.float32) for name, shape in SHAPES.items()}
    save_file(weights, "tiny/model.safetensors")
    return runner(capsys)


def write(config: dict[str, Any]) -> None:
    Path("tiny/config.json").write_text(json.dumps(config))


def test_what_is_written_and_said(cli: Run) -> None:
    assert cli("import", "tiny", "-o", "tiny.sx") == (
        0,
        "wrote tiny.sx: llama, 11 parameters, 656 numbers, from tiny/model.safetensors\n"
        "next: sexpgpu export tiny.sx -o tiny-onnx\n",
        "",
    )
    assert '(defknob weights "tiny/model.safetensors" "of tiny")' in Path("tiny.sx").read_text()
    assert sorted(path.name for path in Path().iterdir()) == ["tiny", "tiny.sx"]
    status, out, _ = cli("export", "tiny.sx", "-o", "exported", "--knob", "window=5")
    assert status == 0
    assert "outputs output [1, 5, 11] f32" in out


def test_what_is_not_known_goes_to_stderr(cli: Run) -> None:
    write({**CONFIG, "wobble": 2})
    weights = load_file("tiny/model.safetensors")
    save_file({**weights, "surplus": np.zeros(1, np.float32)}, "tiny/model.safetensors")
    _, out, err = cli("import", "tiny", "-o", "tiny.sx")
    assert out.startswith("wrote tiny.sx")
    assert err == (
        "note: the configuration has keys that are not known, and the program leaves them out: "
        "wobble\n"
        "note: the file has tensors that the program does not use: surplus\n"
    )


def test_names_are_shown_as_a_terminal_may_see_them(cli: Run) -> None:
    write({**CONFIG, "wob\x1b[2Jble\n": 2, **{f"key-{i}": i for i in range(30)}})
    weights = load_file("tiny/model.safetensors")
    extra = {f"odd\u202e {i}": np.zeros(1, np.float32) for i in range(1)}
    save_file({**weights, **extra}, "tiny/model.safetensors")
    _, out, err = cli("import", "tiny", "-o", "a b.sx")
    assert out.endswith("next: sexpgpu export 'a b.sx' -o 'a b-onnx'\n")
    first, second = err.splitlines()
    assert "leaves them out: wob [2Jble, key-0, key-1" in first
    assert first.endswith("key-18 and 11 more")
    assert second.endswith("does not use: odd 0")


def test_data(cli: Run) -> None:
    write({**CONFIG, "wobble": 2})
    status, out, _ = cli("import", "tiny/model.safetensors", "-o", "tiny.sx", "--json")
    assert status == 0
    assert json.loads(out) == {
        "program": "tiny.sx",
        "family": "llama",
        "weights": "tiny/model.safetensors",
        "parameters": 11,
        "numbers": 656,
        "notes": [],
        "unknown_keys": ["wobble"],
        "unused_tensors": [],
    }


def test_another_class(cli: Run) -> None:
    assert cli("import", "tiny", "-o", "tiny.sx", "--as", "LlamaModel")[0] == 0
    assert "(list :hidden (norm (through blocks (tokens ids))))" in Path("tiny.sx").read_text()
    status, _, err = cli("import", "tiny", "-o", "b.sx", "--as", "LlamaForEverything")
    assert status == 1
    assert "expected: LlamaForCausalLM, LlamaModel" in err


def test_a_program_that_is_there(cli: Run) -> None:
    Path("tiny.sx").write_text("mine")
    status, _, err = cli("import", "tiny", "-o", "tiny.sx")
    assert status == 1
    assert err == (
        "error[E-IMPORT-006]: there is something at tiny.sx already\n"
        " = came: a file\n"
        " = help: choose another name, or replace it with --force\n"
    )
    assert Path("tiny.sx").read_text() == "mine"
    assert cli("import", "tiny", "-o", "tiny.sx", "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (["tiny"], "E-USAGE-001", 2),
        (["-o", "a.sx"], "E-USAGE-001", 2),
        (["none", "-o", "a.sx"], "E-IMPORT-001", 1),
        ([".", "-o", "a.sx"], "E-IMPORT-001", 1),
        (["tiny", "-o", "none/a.sx"], "E-FILE-001", 1),
        (["tiny", "-o", "tiny"], "E-IMPORT-006", 1),
    ],
)
def test_what_is_refused(cli: Run, arguments: list[str], code: str, status: int) -> None:
    found, out, err = cli("import", *arguments)
    assert (found, out) == (status, "")
    assert f"error[{code}]" in err


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"model_type": "lama"}, "E-IMPORT-002"),
        ({"hidden_size": "wide"}, "E-IMPORT-003"),
        ({"num_attention_heads": 8}, "E-IMPORT-003"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "E-IMPORT-003"),
        ({"rope_scaling": {"type": "longrope", "factor": 4}}, "E-IMPORT-004"),
        ({"vocab_size": 12}, "E-IMPORT-005"),
    ],
)
def test_models_that_are_refused(cli: Run, values: dict[str, Any], code: str) -> None:
    write({**CONFIG, **values})
    status, out, err = cli("import", "tiny", "-o", "a.sx")
    assert (status, out) == (1, "")
    assert f"error[{code}]" in err
    assert not Path("a.sx").exists()
