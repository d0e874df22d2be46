"""GGUF files, written as llama.cpp does, give what the models do that they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.families import draft_of
from sexpgpu.tools.importer.source import open_model
from sexpgpu.tools.importer.writing import import_model
from support.gguf_files import add_value, write_gguf
from support.importing import DECODER, WINDOW, Case, check, made, tokens

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 512,
}

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "llama tied, linear": ("LlamaForCausalLM", "LlamaConfig", {
        "tie_word_embeddings": True, "head_dim": 8,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}}),
    "llama, yarn": ("LlamaForCausalLM", "LlamaConfig", {
        "head_dim": 12, "rope_parameters": {**YARN, "beta_fast": 8.0}}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {}),
    "qwen2, yarn": ("Qwen2ForCausalLM", "Qwen2Config", {
        "num_attention_heads": 2, "rope_parameters": YARN}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 8}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {"head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {
        **GEMMA, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 0.7}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {
        **GEMMA, "num_hidden_layers": 7, "rope_parameters": ROPES}),
}  # fmt: skip


class GgufCase(Case):
    """A model that was written as a GGUF file and imported."""

    def __init__(self, model: Any, folder: Path, **options: Any) -> None:
        self.options = options
        super().__init__(model, folder, save=False, window=WINDOW)

    def again(self) -> Any:
        file = write_gguf(self.model, self.folder / "small.gguf", **self.options)
        return import_model(file, self.folder / "program.sx", force=True)


def decoder(name: str, **options: Any) -> Any:
    kind, config, own = MODELS[name]
    return made(kind, getattr(transformers, config)(**{**DECODER, **own, **options}))


@pytest.mark.parametrize("name", MODELS)
def test_decoders(tmp_path: Path, name: str) -> None:
    found = GgufCase(decoder(name), tmp_path)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 60
    found.check_language_model()


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2(tmp_path: Path, tied: bool) -> None:
    config = transformers.GPT2Config(
        vocab_size=37, n_embd=24, n_layer=2, n_head=4, n_positions=20, tie_word_embeddings=tied
    )
    found = GgufCase(made("GPT2LMHeadModel", config), tmp_path)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    found.check_language_model()


def test_bert(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=30, max_position_embeddings=20,
    )  # fmt: skip
    found = GgufCase(made("BertModel", config), tmp_path)
    assert [note.split(":")[0] for note in found.imported.notes] == [
        "a GGUF file does not say the activation of a BERT",
        "the file has no pooler, and the model gives each token's vector alone",
    ]
    ids = tokens(37)
    mask, types = np.ones(ids.shape, bool), ids % 2
    expected = found.theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)
    check(found.run(ids, mask, types)["hidden"], expected.last_hidden_state)


def test_a_bert_without_types(tmp_path: Path) -> None:
    """As a DistilBERT is written: one type, and no table of it."""
    config = transformers.BertConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=30, max_position_embeddings=20, type_vocab_size=1,
    )  # fmt: skip
    model = made("BertModel", config)
    with torch.no_grad():
        model.embeddings.token_type_embeddings.weight.zero_()
    found = GgufCase(model, tmp_path, without="token_type")
    assert ":types 0" in found.text
    ids = tokens(37)
    expected = found.theirs(input_ids=ids).last_hidden_state
    check(found.run(ids, np.ones(ids.shape, bool))["hidden"], expected)


def test_a_roberta_is_a_bert(tmp_path: Path) -> None:
    """Its positions are counted from 0, once those of padding are left out."""
    config = transformers.RobertaConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=30, max_position_embeddings=20, type_vocab_size=1,
    )  # fmt: skip
    found = GgufCase(made("RobertaModel", config), tmp_path)
    assert "tokens of a record, at most 18" in found.text
    ids = np.maximum(tokens(37), 2)
    expected = found.theirs(input_ids=ids).last_hidden_state
    check(found.run(ids, np.ones(ids.shape, bool))["hidden"], expected)


def test_the_factors_of_llama3(tmp_path: Path) -> None:
    """A file has no word of the scaling but what each frequency is divided by."""
    parameters = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = decoder("llama", head_dim=32, rope_parameters=parameters)
    plain = 1 / 500000.0 ** (np.arange(16) / 16)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    assert factors[0] == pytest.approx(1)
    found = GgufCase(model, tmp_path, extra={"rope_freqs.weight": factors})
    assert ":scaling :llama3 :factor 32.0" in found.text
    found.check_language_model()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("qwen2", {}),
        # transformers does not read the width of a head, nor what caps and scales the scores
        ("qwen3", {"head_dim": 128}),
        ("gemma2", {"head_dim": 256, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
    ],
    ids=["qwen2", "qwen3", "gemma2"],
)  # fmt: skip
def test_transformers_reads_the_same_file(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")
    found = GgufCase(decoder(name, num_hidden_layers=2, **options), tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="small.gguf")
    found.model = again.eval()
    found.check_language_model()


def test_quantised_matrices(tmp_path: Path) -> None:
    """The numbers are those of what the blocks stand for."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "head_dim": 8}
    model = decoder("llama", **sizes)
    exact = GgufCase(model, tmp_path / "exact")
    rounded = GgufCase(model, tmp_path / "rounded", quantised="Q8_0")
    ids = tokens(37)
    difference = np.abs(rounded.run(ids)["output"] - exact.run(ids)["output"]).max()
    assert 1e-4 < difference < 0.2


@pytest.mark.parametrize(
    "factors", [[1.0, 2.0, 3.0], [0.0] * 3, [float("nan")] * 3, [1.0, 1.0, float("inf")]], ids=str
)
def test_factors_of_no_known_rope(tmp_path: Path, factors: list[float]) -> None:
    extra = {"rope_freqs.weight": np.array(factors, np.float32)}
    path = write_gguf(decoder("llama"), tmp_path / "a.gguf", extra=extra)
    with pytest.raises(SexpgpuError) as caught:
        import_model(path, tmp_path / "a.sx")
    assert caught.value.code == "E-IMPORT-004"
    assert caught.value.message.endswith("of no scaling that is known")


@pytest.mark.parametrize(
    "name", ["attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier"]
)
def test_a_yarn_that_is_weighted_in_another_way(tmp_path: Path, name: str) -> None:
    metadata = {f"rope.scaling.{name}": 0.5}
    path = write_gguf(decoder("llama, yarn"), tmp_path / "a.gguf", metadata=metadata)
    with pytest.raises(SexpgpuError) as caught:
        import_model(path, tmp_path / "a.sx")
    assert caught.value.code == "E-IMPORT-004"
    assert caught.value.came == f"rope.scaling.{name} 0.5"


VALUES = st.one_of(
    st.integers(0, 2**32 - 1), st.floats(width=32, allow_nan=True), st.booleans(),
    st.text(max_size=6), st.lists(st.integers(0, 9), min_size=1, max_size=3),
)  # fmt: skip
KEYS = [
    "block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
    "attention.key_length", "rope.dimension_count", "rope.freq_base", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_attn_factor", "rope.scale_linear",
    "expert_count", "attention.causal",
    "attention.sliding_window", "attention.sliding_window_pattern", "context_length",
    "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "attn_logit_softcapping",
    "token_type_count", "odd",
]  # fmt: skip


@given(
    architecture=st.sampled_from(["llama", "qwen3", "gemma2", "gemma3", "gpt2", "bert"]),
    values=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    parts=st.one_of(st.none(), VALUES),
)
def test_whatever_the_metadata_says_a_program_or_an_error_comes_of_it(
    tmp_path_factory: pytest.TempPathFactory,
    architecture: str,
    values: dict[str, Any],
    parts: Any,
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {"block_count": 2, "embedding_length": 8, "attention.head_count": 2,
             "feed_forward_length": 9, "attention.key_length": 4}  # fmt: skip
    for key, value in {**sizes, **values}.items():
        add_value(writer, f"{architecture}.{key}", value)
    if parts is not None:
        add_value(writer, "split.count", parts)
    writer.add_tensor("token_embd.weight", np.zeros((5, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    code, text = "", ""
    try:
        text = draft_of(open_model(path)).text("w", "m")
    except SexpgpuError as error:
        code = error.code
    assert code.startswith("E-IMPORT-") or text.startswith("; m: a")
