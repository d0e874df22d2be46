"""PyTorch's export of the same model, of transformers' class, in a process of its own.

    python export_theirs.py FOLDER export OUT.onnx
    python export_theirs.py FOLDER evaluate EXPECTED.npz

What is timed is `torch.onnx.export(…, dynamo=True)` of a model that is in memory in eval mode, to
the written file.  The exporter's modules are loaded before.  `evaluate` computes the outputs in
f64, by which both exports are judged.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file
from torch import nn

from sexpgpu.tools.bench.peak import forget_peak, peak_bytes

#: What parts of our paths are called there, longest first.
_NAMES = {
    "gpt2": {
        "tokens": "transformer.wte.weight",
        "positions": "transformer.wpe.weight",
        "norm": "transformer.ln_f",
        "blocks": "transformer.h",
        "attention-norm": "ln_1",
        "attention.out": "attn.c_proj",
        "attention": "attn",
        "mlp-norm": "ln_2",
        "up": "c_fc",
        "down": "c_proj",
        "w": "weight",
        "b": "bias",
        "scale": "weight",
    },
    "llama3": {
        "tokens": "model.embed_tokens.weight",
        "norm": "model.norm",
        "blocks": "model.layers",
        "attention-norm": "input_layernorm",
        "attention.q": "self_attn.q_proj",
        "attention.k": "self_attn.k_proj",
        "attention.v": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "mlp-norm": "post_attention_layernorm",
        "gate": "gate_proj",
        "up": "up_proj",
        "down": "down_proj",
        "w": "weight",
        "scale": "weight",
    },
    "resnet50": {
        "stem": "resnet.embedder.embedder",
        "stages": "resnet.encoder.stages",
        "reduce": "layer.0",
        "spatial": "layer.1",
        "expand": "layer.2",
        "conv.w": "convolution.weight",
        "norm": "normalization",
        "scale": "weight",
        "mean": "running_mean",
        "variance": "running_var",
        "head": "classifier.1",
        "w": "weight",
        "b": "bias",
    },
}


class Logits(nn.Module):
    """The model's first output alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.model(given)[0]


class SentenceEncoder(nn.Module):
    """What sentence-transformers makes of MiniLM: the mean of the tokens, of length 1."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.model(input_ids=tokens, attention_mask=mask)[0]
        share = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * share).sum(1) / share.sum(1).clamp(min=1e-9)
        return hidden, nn.functional.normalize(mean, dim=1)


def build(description: dict[str, Any]) -> nn.Module:
    """The model in eval mode, with the weights."""
    name, shape = description["name"], description["shape"]
    weights = load_file(description["weights"])
    if name == "minilm":
        config = Path(description["weights"]).with_name("config.json")
        bert = transformers.BertModel(
            transformers.BertConfig(**json.loads(config.read_text())), add_pooling_layer=False
        )
        known = bert.state_dict()
        bert.load_state_dict({key: torch.from_numpy(weights[key]) for key in known})
        return SentenceEncoder(bert).eval()
    model = _made(name, shape)
    _load(model, _renamed(name, weights))
    return Logits(model).eval()


def _made(name: str, shape: Mapping[str, int]) -> Any:
    if name == "gpt2":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=shape["vocab"],
                n_embd=shape.get("dim", 768),
                n_layer=shape.get("depth", 12),
                n_head=shape.get("heads", 12),
                use_cache=False,
            )
        )
    if name == "llama3":
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=shape["vocab"],
                hidden_size=shape["dim"],
                num_hidden_layers=shape["depth"],
                num_attention_heads=shape["heads"],
                num_key_value_heads=shape["kv-heads"],
                intermediate_size=shape["hidden"],
                max_position_embeddings=131072,
                rms_norm_eps=1e-5,
                tie_word_embeddings=True,
                use_cache=False,
                rope_parameters={
                    "rope_type": "llama3",
                    "rope_theta": 500000.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            )
        )
    return transformers.ResNetForImageClassification(
        transformers.ResNetConfig(num_labels=shape.get("classes", 1000))
    )


def _renamed(name: str, weights: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, torch.Tensor]:
    """Our weights under their names; matrices of linear layers are turned where theirs are."""
    names = _NAMES[name]
    pattern = "|".join(re.escape(part) for part in sorted(names, key=len, reverse=True))
    state: dict[str, torch.Tensor] = {}
    for path, array in weights.items():
        # The blocks of a stage are its `layers`.
        given = re.sub(r"^(stages\.\d+)", r"\1.layers", path)
        key = re.sub(rf"(?<![^.])({pattern})(?![^.])", lambda match: names[match[0]], given)
        turned = name != "gpt2" and path.endswith(".w") and array.ndim == 2
        state[key] = torch.from_numpy(array.T if turned else array)
    if name == "gpt2":
        _join_queries_keys_values(state)
        state["lm_head.weight"] = state["transformer.wte.weight"]
    if name == "llama3":
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def _join_queries_keys_values(state: dict[str, torch.Tensor]) -> None:
    """Side by side, as GPT-2 makes them."""
    for key in [key for key in state if key.endswith(("attn.q.weight", "attn.q.bias"))]:
        parts = [state.pop(key.replace(".q.", f".{letter}.")) for letter in "qkv"]
        state[key.replace(".q.", ".c_attn.")] = torch.cat(parts, -1)


def _load(model: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Exactly these; how many batches norms have seen is no weight."""
    seen = {k: v for k, v in model.state_dict().items() if k.endswith("num_batches_tracked")}
    model.load_state_dict({**state, **seen})


def inputs_of(folder: Path) -> list[torch.Tensor]:
    """The inputs; indices and masks as they are used there, i64."""
    with np.load(folder / "inputs.npz") as stored:
        arrays = [stored[key] for key in stored]
    return [
        torch.from_numpy(array if array.dtype.kind == "f" else array.astype(np.int64))
        for array in arrays
    ]


def evaluate(description: dict[str, Any], inputs: list[torch.Tensor]) -> list[np.ndarray[Any, Any]]:
    """The outputs, with everything computed in f64."""
    with _f32_is_f64(), torch.no_grad():
        made = build(description)(
            *(given.double() if given.is_floating_point() else given for given in inputs)
        )
        return [output.numpy() for output in ([made] if torch.is_tensor(made) else made)]


@contextmanager
def _f32_is_f64() -> Iterator[None]:
    """Where a model says f32 it gets f64: norms and turns say so whatever the dtype of the rest."""
    kept = torch.float32, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = kept[0]
        torch.Tensor.float = kept[1]
        torch.set_default_dtype(torch.float32)


def export(model: nn.Module, inputs: list[torch.Tensor], out: Path) -> None:
    """With a dynamic batch, and weights in a file beside the graph's."""
    names = ["tokens", "mask"] if len(inputs) == 2 else ["given"]
    torch.onnx.export(
        model,
        tuple(given[:2] for given in inputs),
        out,
        input_names=names,
        dynamo=True,
        external_data=True,
        dynamic_shapes={name: {0: "batch"} for name in names},
        verbose=False,
    )


def main() -> None:
    folder, mode, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    description = json.loads((folder / "model.json").read_text())
    inputs = inputs_of(folder)
    if mode == "evaluate":
        np.savez(out, *evaluate(description, inputs))
        return
    model = build(description)
    # Loaded by an export when it comes to it.
    import onnxscript.optimizer  # noqa: F401

    forget_peak()
    begin = time.perf_counter()
    export(model, inputs, out)
    print(json.dumps({"seconds": time.perf_counter() - begin, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
