"""What is written of a model: its text, its weights, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sexpgpu.tools.importer.writing import import_model
from support.importing import (
    DECODER,
    WINDOW,
    Case,
    change,
    check,
    llama,
    made,
    reload,
    rewrite,
    tokens,
)

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


QWEN3 = """\
; model: a Qwen 3 (Yang et al. 2025): the next token. Written by sexpgpu import.

(defknob window 64 "tokens that the model sees, at most 64")
(defknob vocab 37 "tokens that there are")
(defknob dim 24 "width of the residual stream")
(defknob depth 3 "layers")
(defknob heads 4)
(defknob kv-heads 2 "heads of keys and values")
(defknob head-dim 8)
(defknob hidden 40 "width of an mlp")

(def record (fields :tokens (list i32 window)))

(defn norm (width) (rms-norm width :epsilon 1e-6))

(defn block (local)
  (pre-norm-block
    (norm dim)
    (self-attention dim heads :kv-heads kv-heads :head-dim head-dim :causal true :bias false
      :rotary true :base 10000.0 :window (if local 4 nil) :qk-norm norm :transposed true)
    (norm dim)
    (swiglu dim hidden :transposed true)))

(defmodel qwen3 ()
  (parts tokens (param (list vocab dim))
         blocks (for (i (range depth)) (block (<= 1 i)))
         norm   (norm dim))
  (apply (ids) (matmul (norm (through blocks (take tokens ids))) (transpose tokens))))

(def model
  (load-from weights (qwen3) :frozen true
    :rename (list
      "tokens"           "model.embed_tokens.weight"
      "blocks"           "model.layers"
      "attention-norm"   "input_layernorm"
      "attention.q"      "self_attn.q_proj"
      "attention.k"      "self_attn.k_proj"
      "attention.v"      "self_attn.v_proj"
      "attention.out"    "self_attn.o_proj"
      "attention.q-norm" "self_attn.q_norm"
      "attention.k-norm" "self_attn.k_norm"
      "mlp.gate"         "mlp.gate_proj"
      "mlp.up"           "mlp.up_proj"
      "mlp.down"         "mlp.down_proj"
      "mlp-norm"         "post_attention_layernorm"
      "norm"             "model.norm"
      "w"                "weight"
      "scale"            "weight")))
"""


def test_a_decoder_as_a_person_would_write_it(tmp_path: Path) -> None:
    config = transformers.Qwen3Config(
        **DECODER, head_dim=8, tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=4, max_window_layers=1,
    )  # fmt: skip
    assert Case(made("Qwen3ForCausalLM", config), tmp_path).text == QWEN3


ALBERT = """\
(defmodel albert ()
  (parts embedding  (bert-embedding vocab 20 narrow)
         widen      (linear narrow dim :transposed true)
         shared     (block)
         pooler     (linear dim dim :transposed true)
         classifier (linear dim classes :transposed true))
  (apply (ids mask kinds)
    (let (x      (widen (embedding ids :kinds kinds))
          hidden (through (repeat shared depth) x :mask mask))
      (list :logits (classifier (tanh (pooler (take hidden 0 :axis 1))))))))
"""


def test_an_encoder_as_a_person_would_write_it(tmp_path: Path) -> None:
    config = transformers.AlbertConfig(
        vocab_size=37, embedding_size=10, hidden_size=24, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=30, max_position_embeddings=20,
    )  # fmt: skip
    assert ALBERT in Case(made("AlbertForSequenceClassification", config), tmp_path).text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_16_bits_are_widened(tmp_path: Path, dtype: str) -> None:
    model = made("LlamaForCausalLM", transformers.LlamaConfig(**DECODER))
    case = Case(model.to(getattr(torch, dtype)), tmp_path, window=WINDOW)
    # not `model.float()`, whose turns have been rounded too
    reload(case)
    case.check_language_model()


def test_several_files(tmp_path: Path) -> None:
    case = llama(tmp_path)
    (tmp_path / "model" / "model.safetensors").unlink()
    case.model.save_pretrained(tmp_path / "model", max_shard_size="8KB")
    case.imported = case.again()
    assert case.imported.weights.name == "model.safetensors.index.json"
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    case.check_language_model()


def test_no_scaling_of_before_is_none(tmp_path: Path) -> None:
    """As transformers: what is empty does not stand for what is said beside it."""
    case = llama(tmp_path, rope_parameters={
        "rope_type": "linear", "rope_theta": 100.0, "factor": 3.0})  # fmt: skip
    text = case.text
    change(case, rope_scaling={})
    assert case.text == text
    reload(case)
    case.check_language_model()


@pytest.mark.parametrize("same", [True, False])
def test_a_tied_head_that_the_file_has_all_the_same(tmp_path: Path, same: bool) -> None:
    case = llama(tmp_path, tie_word_embeddings=True)
    table = load_file(tmp_path / "model" / "model.safetensors")["model.embed_tokens.weight"]
    rewrite(case, **{"lm_head.weight": table if same else table[::-1].copy()})
    reload(case)
    assert case.imported.unused == []
    assert [note.partition(",")[0] for note in case.imported.notes] == (
        [] if same else ["tie_word_embeddings is true"]
    )
    case.check_language_model()


@pytest.mark.parametrize("same", [True, False])
def test_a_masked_language_model_with_both_biases(tmp_path: Path, same: bool) -> None:
    config = transformers.BertConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=30, max_position_embeddings=20,
    )  # fmt: skip
    case = Case(made("BertForMaskedLM", config), tmp_path, window=WINDOW)
    bias = load_file(tmp_path / "model" / "model.safetensors")["cls.predictions.bias"]
    rewrite(case, **{"cls.predictions.decoder.bias": bias if same else bias + 1})
    reload(case)
    ids = tokens(37)
    found = case.run(ids, np.ones(ids.shape, bool), np.zeros(ids.shape, np.int32))
    check(found["logits"], case.theirs(input_ids=ids).logits)


def test_norms_of_old_files_are_gamma_and_beta(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=30, max_position_embeddings=20,
    )  # fmt: skip
    case = Case(made("BertModel", config), tmp_path, window=WINDOW)
    path = tmp_path / "model" / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in load_file(path).items()
    }
    save_file(old, path, {"format": "pt"})
    case.imported = case.again()
    ids = tokens(37)
    found = case.run(ids, np.ones(ids.shape, bool), np.zeros(ids.shape, np.int32))
    check(found["hidden"], case.theirs(input_ids=ids).last_hidden_state)


def test_a_model_without_its_head(tmp_path: Path) -> None:
    case = Case(made("LlamaModel", transformers.LlamaConfig(**DECODER)), tmp_path, window=WINDOW)
    ids = tokens(37)
    check(case.run(ids)["hidden"], case.theirs(input_ids=ids).last_hidden_state)


def test_keys_and_tensors_that_are_not_known_are_named(tmp_path: Path) -> None:
    case = llama(tmp_path)
    change(case, wobble=1.5, nothing=None, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "twist": 2})  # fmt: skip
    extra = {f"model.layers.{i}.extra": np.ones(2, np.float32) for i in range(3)}
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(2, "f4") for i in (0, 1)}
    rewrite(case, **extra, **buffers, surplus=np.ones(3, np.float32))
    assert case.imported.unknown == ["wobble", "rope_parameters.twist"]
    assert sorted(case.imported.unused) == ["model.layers.*.extra (3 of them)", "surplus"]
    case.check_language_model()


def test_files_that_others_would_heed_are_named(tmp_path: Path) -> None:
    case = llama(tmp_path)
    (tmp_path / "model" / "modules.json").write_text("[]")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    adapter, modules = case.again().notes
    assert adapter == "there is an adapter beside the weights, and it is not applied"
    assert modules.startswith("sentence-transformers makes a text's vector")


def test_settings_of_before_are_read(tmp_path: Path) -> None:
    """transformers 4 had the base of the rope beside its scaling."""
    case = llama(tmp_path, rope_parameters={
        "rope_type": "linear", "rope_theta": 100.0, "factor": 3.0})  # fmt: skip
    text = case.text
    change(
        case, rope_parameters=None, rope_theta=100.0, rope_scaling={"type": "linear", "factor": 3}
    )
    assert case.imported.unknown == []
    assert case.text == text.replace(":factor 3.0", ":factor 3.0")


def test_the_path_is_one_from_here_where_that_is_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama(tmp_path)
    weights = '(defknob weights "{}" "of model")'
    below, beside = tmp_path, tmp_path / "elsewhere"
    beside.mkdir()
    monkeypatch.chdir(below)
    text = import_model(Path("model"), Path("a.sx")).program.read_text()
    assert weights.format("model/model.safetensors") in text
    monkeypatch.chdir(beside)
    text = import_model(Path("../model"), Path("a.sx")).program.read_text()
    assert f'"{tmp_path}/model/model.safetensors"' in text


def test_a_name_cannot_break_out_of_the_comment(tmp_path: Path) -> None:
    odd = tmp_path / 'a\n(error "b")"'
    llama(odd)
    first, second, *_ = (odd / "program.sx").read_text().splitlines()
    assert (
        first
        == "; model: a Llama (Touvron et al. 2023): the next token. Written by sexpgpu import."
    )
    assert second == ""
    (odd / "model").rename(odd / "mo\ndel")
    text = import_model(odd / "mo\ndel", odd / "other.sx").program.read_text()
    assert text.startswith("; mo del: a Llama")
    assert "\\n(error" in text
