"""The prelude's attention and the layers of transformers, against NumPy written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.layers import BATCH, Layer, X, attend, rms_normal
from support.programs import place, program_error

#: A call with a mask [batch, positions] that lets the first position be seen always.
MASKED = (
    "(m x :mask (concat (broadcast-to true (list (dim x 0) 1)) "
    "(slice mask :axis 1 :from 1) :axis 1))"
)


EVERY = np.ones((5, 5), bool)
CAUSAL = np.tril(EVERY)


def turned(x: Array, by: float = 1.0) -> Array:
    """Rotary of pairs (j, j + size/2), by positions from 0, base 100."""
    half = x.shape[-1] // 2
    angles = by * np.arange(x.shape[-2])[:, None] * 100.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def turned_in_pairs(x: Array) -> Array:
    """Rotary of pairs (2j, 2j + 1) of the first two components alone."""
    angles = np.arange(x.shape[-2])
    a, b = x[..., 0], x[..., 1]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([np.stack([a * cos - b * sin, b * cos + a * sin], -1), x[..., 2:]], -1)


def test_self_attention() -> None:
    layer = Layer("(self-attention 4 2)", X)
    assert list(layer.weights) == ["q.w", "q.b", "k.w", "k.b", "v.w", "v.b", "out.w", "out.b"]
    layer.is_close_to(attend(layer, 2, 2, EVERY))


def test_self_attention_causal_and_without_bias() -> None:
    layer = Layer("(self-attention 4 2 :causal true :bias false)", X)
    assert list(layer.weights) == ["q.w", "k.w", "v.w", "out.w"]
    layer.is_close_to(attend(layer, 2, 2, CAUSAL))


def test_self_attention_without_the_last_bias() -> None:
    layer = Layer("(self-attention 4 2 :out-bias false)", X)
    assert "out.b" not in layer.weights
    layer.is_close_to(attend(layer, 2, 2, EVERY))


def test_self_attention_grouped_query() -> None:
    layer = Layer("(self-attention 4 4 :kv-heads 2 :head-dim 2)", X)
    assert layer["k.w"].shape == (4, 4)
    layer.is_close_to(attend(layer, 4, 2, EVERY))


def test_self_attention_of_one_product() -> None:
    """Queries, keys and values stand in it in this order, of as many heads as each has."""
    layer = Layer("(self-attention 4 4 :kv-heads 2 :head-dim 2 :fused true)", X)
    assert list(layer.weights) == ["qkv.w", "qkv.b", "out.w", "out.b"]
    for kind in ("w", "b"):
        parts = np.split(layer.weights[f"qkv.{kind}"], [8, 12], -1)
        layer.weights |= {f"{name}.{kind}": part for name, part in zip("qkv", parts, strict=True)}
    layer.is_close_to(attend(layer, 4, 2, EVERY))


def test_self_attention_rotary() -> None:
    layer = Layer("(self-attention 4 2 :head-dim 4 :rotary true :base 100 :causal true)", X)
    layer.is_close_to(attend(layer, 2, 2, CAUSAL, lambda x, _: turned(x)))


def test_self_attention_rotary_of_interleaved_pairs_of_some_components() -> None:
    options = ":head-dim 4 :rotary true :interleaved true :rotary-dim 2"
    layer = Layer(f"(self-attention 4 2 {options})", X)
    layer.is_close_to(attend(layer, 2, 2, EVERY, lambda x, _: turned_in_pairs(x)))


def test_self_attention_in_a_window() -> None:
    layer = Layer("(self-attention 4 2 :causal true :window 2)", X)
    layer.is_close_to(attend(layer, 2, 2, CAUSAL & ~np.tril(EVERY, -2)))


def test_self_attention_with_a_soft_cap() -> None:
    layer = Layer("(self-attention 4 2 :softcap 1.5)", X)
    layer.is_close_to(attend(layer, 2, 2, EVERY, softcap=1.5))


def test_self_attention_with_a_mask_of_keys() -> None:
    layer = Layer("(self-attention 4 2)", X, "mask (list bool 5)", call=MASKED)
    mask = layer.inputs[1].copy()
    mask[:, 0] = True
    layer.is_close_to(attend(layer, 2, 2, np.broadcast_to(mask[:, None], (BATCH, 5, 5))))


def test_self_attention_with_a_mask_of_pairs() -> None:
    call = "(m x :mask (logical-or mask (eye 5 :dtype bool)))"
    layer = Layer("(self-attention 4 2)", X, "mask (list bool 1 5 5)", call=call)
    layer.is_close_to(attend(layer, 2, 2, layer.inputs[1][:, 0] | np.eye(5, dtype=bool)))


def test_self_attention_refuses_a_width_that_its_heads_do_not_divide() -> None:
    error = program_error("(def x (self-attention 8 3))", "E-ASSERT-001")
    assert error.message == "a width of 8 cannot be divided among 3 heads"
    assert place(error) == (1, 8, "(self-attention 8 3)")


def test_self_attention_by_a_scale() -> None:
    layer = Layer("(self-attention 4 2 :scale 0.3)", X)
    layer.is_close_to(attend(layer, 2, 2, EVERY, scale=0.3))


def test_self_attention_with_normalised_queries_and_keys() -> None:
    """Before they are turned; values are left as they are."""
    options = ":qk-norm rms-norm :rotary true :base 100 :head-dim 4"
    layer = Layer(f"(self-attention 4 2 {options})", X)

    def turn(x: Array, name: str) -> Array:
        return turned(rms_normal(x, 1e-6) * layer[f"{name}-norm.scale"])

    assert layer["q-norm.scale"].shape == layer["k-norm.scale"].shape == (4,)
    layer.is_close_to(attend(layer, 2, 2, EVERY, turn))


@pytest.mark.parametrize("layer", ["self-attention", "cross-attention"])
def test_without_a_bias_of_the_keys(layer: str) -> None:
    call = "(m x)" if layer == "self-attention" else "(m x x)"
    made = Layer(f"({layer} 4 2 :key-bias false)", X, call=call)
    assert [path for path in made.weights if path.endswith("b")] == ["q.b", "v.b", "out.b"]
    made.is_close_to(attend(made, 2, 2, EVERY))


def test_self_attention_with_options_of_rotary() -> None:
    """A linear scaling by 4 turns as if positions were a quarter of what they are."""
    options = ":rotary true :base 100 :rotary-options (list :scaling :linear :factor 4.0)"
    layer = Layer(f"(self-attention 4 2 :head-dim 4 {options})", X)
    layer.is_close_to(attend(layer, 2, 2, EVERY, lambda x, _: turned(x, 0.25)))


def test_self_attention_with_a_bias_of_its_scores() -> None:
    """Added after the scale; a head has its own."""
    layer = Layer("(self-attention 4 2)", X, "bias (list f32 2 5 5)", call="(m x :bias bias)")
    layer.is_close_to(attend(layer, 2, 2, EVERY, bias=layer.inputs[1]))


def test_self_attention_takes_a_bias_with_a_mask() -> None:
    call = "(m x :bias bias :mask (logical-or mask (eye 5 :dtype bool)))"
    fields = "bias (list f32 1 5 5)", "mask (list bool 1 5 5)"
    layer = Layer("(self-attention 4 2 :causal true)", X, *fields, call=call)
    allowed = (layer.inputs[2][:, 0] | np.eye(5, dtype=bool)) & CAUSAL
    layer.is_close_to(attend(layer, 2, 2, allowed, bias=layer.inputs[1]))


MEMORY = "memory (list f32 7 3)"


def test_cross_attention() -> None:
    layer = Layer("(cross-attention 4 2 :memory-dim 3)", X, MEMORY, call="(m x memory)")
    assert list(layer.weights) == ["q.w", "q.b", "k.w", "k.b", "v.w", "v.b", "out.w", "out.b"]
    assert layer["k.w"].shape == (3, 4)
    layer.is_close_to(attend(layer, 2, 2, np.ones((5, 7), bool), memory=layer.inputs[1]))


def test_cross_attention_of_queries_that_records_share() -> None:
    layer = Layer("(cross-attention 4 2)", X, call="(m (take x 0) x)")
    layer.is_close_to(
        attend(layer, 2, 2, EVERY, x=np.broadcast_to(layer.x[:1], layer.x.shape), memory=layer.x)
    )


def test_cross_attention_with_a_mask_a_bias_and_a_scale() -> None:
    call = (
        "(m x memory :bias bias :mask (concat (broadcast-to true (list (dim x 0) 1)) "
        "(slice mask :axis 1 :from 1) :axis 1))"
    )
    layer = Layer(
        "(cross-attention 4 2 :memory-dim 3 :head-dim 3 :scale 0.5 :bias false)",
        *(X, MEMORY, "mask (list bool 7)", "bias (list f32 2 5 7)"),
        call=call,
    )
    assert list(layer.weights) == ["q.w", "k.w", "v.w", "out.w"]
    _, memory, mask, bias = layer.inputs
    mask = mask.copy()
    mask[:, 0] = True
    allowed = np.broadcast_to(mask[:, None], (BATCH, 5, 7))
    layer.is_close_to(attend(layer, 2, 2, allowed, memory=memory, bias=bias, scale=0.5))


def test_self_attention_refuses_what_has_no_positions() -> None:
    head = "(def record (fields :x (list f32 4)))\n"
    error = program_error(head + "(def model (self-attention 4 2))", "E-ASSERT-001")
    assert error.message.startswith("self-attention takes a tensor [batch, positions, width], and")


@pytest.mark.parametrize(
    "options",
    [
        "",
        ":causal true",
        ":causal true :window 2 :scale 0.7",
        ":window 3",
        ":softcap 0.8 :bias bias",
        ":mask mask :bias bias :causal true",
    ],
)
@pytest.mark.parametrize("keys", [5, 7])
def test_attention_weights_are_what_attention_weighs_by(options: str, keys: int) -> None:
    """Four heads of queries, two of keys; where there are more keys, the last stand together."""
    layer = Layer(
        f"(fn (q k v mask bias) (concat (attention q k v {options}) "
        f"(matmul (attention-weights q k {options}) (take v (tensor (list 0 0 1 1)) :axis 1)) "
        ":axis 1))",
        *("x (list f32 4 5 6)", f"k (list f32 2 {keys} 6)", f"v (list f32 2 {keys} 3)"),
        *(f"mask (list bool 1 5 {keys})", f"bias (list f32 4 5 {keys})"),
        call="(m x k v mask bias)",
    )
    attended, weighed = layer.found[:, :4], layer.found[:, 4:]
    np.testing.assert_allclose(weighed, attended, 1e-4, 1e-5)


def test_self_attention_gives_its_weights() -> None:
    """Of a query that sees nothing they are 0."""
    layer = Layer(
        "(self-attention 4 2 :kv-heads 1 :causal true :rotary true)",
        *(X, "mask (list bool 5)"),
        call="(last (m x :mask mask :weights true))",
    )
    found, mask = layer.found, layer.inputs[1][:, None, None] & CAUSAL
    assert found.shape == (BATCH, 2, 5, 5)
    np.testing.assert_allclose(found.sum(-1), np.broadcast_to(mask.any(-1), found.shape[:3]), 1e-5)
    assert not mask.any(-1).all()
    assert not found[np.broadcast_to(~mask, found.shape)].any()
    plain, first = (
        Layer("(self-attention 4 2)", X, call=call)
        for call in ("(m x)", "(first (m x :weights true))")
    )
    np.testing.assert_array_equal(first.found, plain.found)
