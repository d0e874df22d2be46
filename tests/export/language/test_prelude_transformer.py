"""The prelude's layers of transformers, against NumPy written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer, X, attend, gelu, layer_normal, rms_normal
from support.programs import program_error

EVERY = np.ones((5, 5), bool)
#: A call with a mask [batch, positions] that lets the first position be seen always, and a bias.
CALL = (
    "(m x :bias bias :mask (concat (broadcast-to true (list (dim x 0) 1)) "
    "(slice mask :axis 1 :from 1) :axis 1))"
)
FIELDS = X, "mask (list bool 5)", "bias (list f32 2 5 5)"


def attention(layer: Layer, x: Array, at: str) -> Array:
    """Of two heads, under the mask and the bias of the call where there are any."""
    if len(layer.inputs) == 1:
        return attend(layer, 2, 2, EVERY, x=x, at=at)
    mask = layer.inputs[1].copy()
    mask[:, 0] = True
    allowed = np.broadcast_to(mask[:, None], (BATCH, 5, 5))
    return attend(layer, 2, 2, allowed, x=x, at=at, bias=layer.inputs[2])


def mlp(layer: Layer, x: Array, at: str) -> Array:
    inner = gelu(x @ layer[f"{at}up.w"] + layer[f"{at}up.b"])
    return np.asarray(inner @ layer[f"{at}down.w"] + layer[f"{at}down.b"])


def norm(layer: Layer, x: Array, at: str) -> Array:
    """A layer-norm, or an rms-norm where there is no bias."""
    if f"{at}bias" in layer.weights:
        return layer_normal(x) * layer[f"{at}scale"] + layer[f"{at}bias"]
    return rms_normal(x, 1e-6) * layer[f"{at}scale"]


def pre_norm(layer: Layer, x: Array, at: str = "") -> Array:
    normal = norm(layer, x, f"{at}attention-norm.")
    x = x + attention(layer, normal, f"{at}attention.")
    return x + mlp(layer, norm(layer, x, f"{at}mlp-norm."), f"{at}mlp.")


def post_norm(layer: Layer, x: Array) -> Array:
    x = norm(layer, x + attention(layer, x, "attention."), "attention-norm.")
    return norm(layer, x + mlp(layer, x, "mlp."), "mlp-norm.")


def sandwich(layer: Layer, x: Array) -> Array:
    made = attention(layer, norm(layer, x, "attention-norm."), "attention.")
    x = x + norm(layer, made, "attention-after.")
    return x + norm(layer, mlp(layer, norm(layer, x, "mlp-norm."), "mlp."), "mlp-after.")


PRE_NORM = "(pre-norm-block (layer-norm 4) (self-attention 4 2) (rms-norm 4) (mlp 4 7 4))"
POST_NORM = "(post-norm-block (self-attention 4 2) (layer-norm 4) (mlp 4 7 4) (rms-norm 4))"
SANDWICH = (
    "(sandwich-block (layer-norm 4) (self-attention 4 2) (rms-norm 4) "
    "(rms-norm 4) (mlp 4 7 4) (layer-norm 4))"
)
#: What is made of x by each of the blocks.
BLOCKS = {PRE_NORM: pre_norm, POST_NORM: post_norm, SANDWICH: sandwich}


@pytest.mark.parametrize("expression", BLOCKS)
def test_block(expression: str) -> None:
    layer = Layer(expression, X)
    layer.is_close_to(BLOCKS[expression](layer, layer.x))


@pytest.mark.parametrize("expression", BLOCKS)
def test_block_hands_a_mask_and_a_bias_to_attention(expression: str) -> None:
    layer = Layer(expression, *FIELDS, call=CALL)
    layer.is_close_to(BLOCKS[expression](layer, layer.x))


def test_block_takes_whatever_mixes_positions() -> None:
    """A function of x alone, to which neither a mask nor a bias is handed."""
    layer = Layer(
        "(pre-norm-block (layer-norm 4) (fn (x) (cumsum x :axis 1)) (rms-norm 4) (mlp 4 7 4))", X
    )
    x = layer.x
    x = x + norm(layer, x, "attention-norm.").cumsum(1)
    layer.is_close_to(x + mlp(layer, norm(layer, x, "mlp-norm."), "mlp."))


@pytest.mark.parametrize("masked", [False, True])
def test_through_several_layers(masked: bool) -> None:
    call = CALL.replace("(m x", "(through m x") if masked else "(through m x)"
    layer = Layer(f"(for (i (range 2)) {PRE_NORM})", *(FIELDS if masked else (X,)), call=call)
    layer.is_close_to(pre_norm(layer, pre_norm(layer, layer.x, "0."), "1."))


def test_through_no_layer() -> None:
    layer = Layer("(list)", X, call="(* 1 (through m x))")
    layer.is_close_to(layer.x)


@pytest.mark.parametrize("kinds", [False, True])
def test_bert_embedding(kinds: bool) -> None:
    fields = ("x (list i32 4)", "kinds (list i32 4)")
    layer = Layer(
        "(bert-embedding 5 6 3 :types 5 :epsilon 0.1)",
        *fields[: 1 + kinds],
        call="(m x :kinds kinds)" if kinds else "(m x)",
    )
    assert layer["positions.w"].shape == (6, 3)
    types = layer["types.w"][layer.inputs[1] if kinds else 0]
    x = layer["tokens.w"][layer.inputs[0]] + layer["positions.w"][:4] + types
    layer.is_close_to(layer_normal(x, 0.1) * layer["norm.scale"] + layer["norm.bias"])


def test_bert_embedding_without_types_from_another_position() -> None:
    layer = Layer("(bert-embedding 5 6 3 :types 0 :start 2)", "x (list i32 4)", call="(m x)")
    assert set(layer.weights) == {"tokens.w", "positions.w", "norm.scale", "norm.bias"}
    x = layer["tokens.w"][layer.inputs[0]] + layer["positions.w"][2:]
    layer.is_close_to(layer_normal(x, 1e-12) * layer["norm.scale"] + layer["norm.bias"])


def test_bert_embedding_has_no_vector_for_further_positions() -> None:
    text = "(def record (fields :x (list i32 7)))\n(def model (bert-embedding 5 6 3))"
    error = program_error(text, "E-ASSERT-001")
    assert error.message.endswith("there are vectors for 6 positions, and 7 came")
    error = program_error(text.replace("6 3", "8 3 :start 2"), "E-ASSERT-001")
    assert error.message.endswith("there are vectors for 6 positions, and 7 came")
