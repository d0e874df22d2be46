"""Llama, Mistral and Qwen: what is imported gives the logits of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.subject import from_program
from sexpgpu.schemas.errors import SexpgpuError
from support.importing import DECODER, WINDOW, Case, check, made, tokens

transformers = pytest.importorskip("transformers")


def case(folder: Path, family: str, head: str = "ForCausalLM", **options: Any) -> Case:
    config = getattr(transformers, f"{family}Config")(**{**DECODER, **options})
    return Case(made(f"{family}{head}", config), folder, window=WINDOW)


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}

#: What a YaRN may have beside its factor.
YARNS: list[dict[str, Any]] = [
    {"beta_fast": 8, "beta_slow": 2.0},
    {"truncate": False},
    {"attention_factor": 0.7},
    {"mscale": 0.707, "mscale_all_dim": 1.2},
    {"mscale": 0.707},
    {"factor": 1.0, "mscale": 2.0, "mscale_all_dim": 1.0},
    {"original_max_position_embeddings": 16},
]

#: A name, the family, and what is not as it is by default.
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "Llama", {}),
    ("tied", "Llama", {"tie_word_embeddings": True}),
    ("biases", "Llama", {"attention_bias": True, "mlp_bias": True}),
    ("narrow heads", "Llama", {"head_dim": 8, "num_key_value_heads": 4}),
    ("linear rope", "Llama", {"rope_parameters": {
        "rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}}),
    ("llama3 rope", "Llama", {"rope_parameters": LLAMA3}),
    ("yarn", "Llama", {"head_dim": 12, "rope_parameters": YARN}),
    ("dynamic rope", "Llama", {"rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}}),
    ("relu", "Llama", {"hidden_act": "relu", "rms_norm_eps": 1e-3}),
    ("yarn", "Mistral", {"head_dim": 12, "rope_parameters": YARN}),
    ("window", "Mistral", {"sliding_window": 5}),
    ("no window", "Mistral", {"sliding_window": None, "head_dim": 10}),
    ("plain", "Qwen2", {}),
    ("yarn", "Qwen2", {"num_attention_heads": 2, "rope_parameters": YARN}),
    ("upper windows", "Qwen2", {
        "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    ("tied", "Qwen2", {"tie_word_embeddings": True}),
    ("plain", "Qwen3", {"head_dim": 8}),
    ("yarn", "Qwen3", {"head_dim": 12, "rope_parameters": YARN}),
    ("biases", "Qwen3", {"head_dim": 6, "attention_bias": True}),
    ("mixed windows", "Qwen3", {"head_dim": 8, "use_sliding_window": True, "sliding_window": 4,
        "num_hidden_layers": 4, "layer_types": [
            "sliding_attention", "full_attention", "full_attention", "sliding_attention"]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "options"), MODELS, ids=lambda item: str(item)[:20])
def test_equal_to_transformers(
    tmp_path: Path, name: str, family: str, options: dict[str, Any]
) -> None:
    found = case(tmp_path, family, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 60
    found.check_language_model()


@pytest.mark.parametrize("options", YARNS, ids=str)
def test_yarn(tmp_path: Path, options: dict[str, Any]) -> None:
    parameters = {**YARN, **options}
    found = case(tmp_path, "Llama", head_dim=12, num_hidden_layers=1, rope_parameters=parameters)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    found.check_language_model()


def test_yarn_as_it_is_put_into_a_configuration(tmp_path: Path) -> None:
    """As Qwen's pages say: under the older key, beside the base."""
    found = case(tmp_path, "Qwen2", num_attention_heads=2, max_position_embeddings=512)
    file = tmp_path / "model" / "config.json"
    values = json.loads(file.read_text())
    del values["rope_parameters"]
    yarn = {"factor": 4.0, "original_max_position_embeddings": 512, "type": "yarn"}
    file.write_text(json.dumps({**values, "rope_theta": 10000.0, "rope_scaling": yarn}))
    found.imported = found.again()
    assert found.imported.unknown == []
    assert '(defknob window 128 "tokens that the model sees, at most 2,048")' in found.text
    assert ":rotary-options (list :scaling :yarn :factor 4.0 :original 512)" in found.text
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert again.config.rope_parameters["rope_type"] == "yarn"
    found.model = again.eval()
    found.check_language_model()


def test_a_yarn_without_a_factor_stretches_to_what_there_is(tmp_path: Path) -> None:
    found = case(tmp_path, "Llama", head_dim=12, rope_parameters=YARN)
    file = tmp_path / "model" / "config.json"
    values = json.loads(file.read_text())
    values |= {"max_position_embeddings": 1536}
    values["rope_parameters"]["factor"] = None
    file.write_text(json.dumps(values))
    assert ":scaling :yarn :factor 3.0 :original 512" in (found.again(), found.text)[1]


def test_a_dynamic_rope_holds_for_the_positions_of_before(tmp_path: Path) -> None:
    found = case(
        tmp_path, "Llama", max_position_embeddings=16,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0},
    )  # fmt: skip
    assert '(defknob window 16 "tokens that the model sees, at most 16")' in found.text
    ids = tokens(37, 16)
    program = found.imported.program
    export_model(from_program(program, knobs={}), tmp_path / "whole", ExportOptions(verify=False))
    session = Session(tmp_path / "whole" / "model.onnx")
    check(session.run({"inputs": ids})["output"], found.theirs(input_ids=ids).logits)
    with pytest.raises(SexpgpuError) as caught:
        export_model(
            from_program(program, knobs={"window": 17}), tmp_path / "more", ExportOptions()
        )
    assert caught.value.code == "E-ASSERT-001"
    assert caught.value.message.endswith("the rope is another for texts of more than 16 tokens")


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_classes(tmp_path: Path, family: str) -> None:
    found = case(tmp_path / "text", family, "ForSequenceClassification", num_labels=5)
    assert (found.imported.notes, found.imported.unused) == ([], [])
    found.check_classes_of_texts()
    found = case(tmp_path / "tokens", family, "ForTokenClassification", num_labels=5)
    assert (found.imported.notes, found.imported.unused) == ([], [])
    ids = tokens(37)
    check(found.run(ids)["logits"], found.theirs(input_ids=ids).logits)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_answers(tmp_path: Path, family: str) -> None:
    found = case(tmp_path, family, "ForQuestionAnswering")
    assert (found.imported.notes, found.imported.unused) == ([], [])
    found.check_answers(tokens(37))


ROPES = st.sampled_from(
    [None, LLAMA3, YARN, {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}]
)


@settings(max_examples=8)
@given(
    family=st.sampled_from(["Llama", "Mistral", "Qwen2", "Qwen3"]),
    heads=st.sampled_from([(1, 1), (4, 4), (6, 2), (6, 3)]),
    head_dim=st.sampled_from([2, 6, 10]),
    tied=st.booleans(),
    bias=st.booleans(),
    rope=ROPES,
    window=st.sampled_from([None, 1, 3, 50]),
    epsilon=st.sampled_from([1e-6, 0.01]),
)
def test_settings_together(
    tmp_path_factory: pytest.TempPathFactory,
    family: str,
    heads: tuple[int, int],
    head_dim: int,
    tied: bool,
    bias: bool,
    rope: dict[str, Any] | None,
    window: int | None,
    epsilon: float,
) -> None:
    options: dict[str, Any] = {
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "tie_word_embeddings": tied,
        "rms_norm_eps": epsilon,
        "num_hidden_layers": 2,
    }
    options |= {"rope_parameters": dict(rope)} if rope else {}
    # a head of Qwen 2 has its share of the width, and biases are not a setting of all
    options |= {"head_dim": head_dim} if family != "Qwen2" else {}
    options |= {"attention_bias": bias} if family in ("Llama", "Qwen3") else {}
    options |= {"mlp_bias": not bias} if family == "Llama" else {}
    options |= {"sliding_window": window} if family == "Mistral" else {}
    if family.startswith("Qwen") and window:
        options |= {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 1}
    case(tmp_path_factory.mktemp("together"), family, **options).check_language_model()
