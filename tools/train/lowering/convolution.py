"""Convolution over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import lax

from sexpgpu.export.operations.stamps import Stamps, place_stamps
from sexpgpu.export.operations.windows import Windows, place_windows
from sexpgpu.tools.train.lowering.products import is_narrow, round_f32
from sexpgpu.tools.train.lowering.rule import Application, rule


class Convolve(Protocol):
    """A convolution of x by w."""

    def __call__(
        self, x: jax.Array, w: jax.Array, precision: lax.Precision = lax.Precision.HIGHEST
    ) -> jax.Array: ...


#: Positions of a kernel that are added up one by one.
_LARGEST_SHIFTED = 64


@rule("conv")
def conv(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    given = at.named(inputs)
    x, w = given["x"], given["w"]
    windows = place_windows(
        "conv",
        x.shape[2:],
        w.shape[2:],
        at.attributes["stride"],
        at.attributes["padding"],
        dilations=at.attributes["dilation"],
    )
    return [_apply(at, given, partial(_convolve, windows, at.attributes["groups"]))]


@rule("conv-transpose")
def conv_transpose(at: Application, inputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    given = at.named(inputs)
    x, w = given["x"], given["w"]
    stamps = place_stamps("conv-transpose", x.shape[2:], w.shape[2:], at.attributes)
    return [_apply(at, given, partial(_transposed, stamps, at.attributes["groups"]))]


def _apply(at: Application, given: Mapping[str, jax.Array], convolve: Convolve) -> jax.Array:
    """The convolution of x and w, whose operands are rounded where that is asked, and the bias."""
    x, w = given["x"], given["w"]
    y = _rounded(convolve, x, w) if is_narrow(at, x) else convolve(x, w)
    return y + given["bias"].reshape((-1, *[1] * (x.ndim - 2))) if "bias" in given else y


def _convolve(
    windows: Windows,
    groups: int,
    x: jax.Array,
    w: jax.Array,
    precision: lax.Precision = lax.Precision.HIGHEST,
) -> jax.Array:
    """By XLA's own convolution; its CPU has a quick one without groups alone."""
    if groups == 1 or jax.default_backend() != "cpu":
        return _native(windows, groups, x, w, precision)
    if w.shape[1] == 1 and math.prod(windows.sizes) <= _LARGEST_SHIFTED:
        return _shifted(windows, x, w)
    share = x.shape[1] // groups
    parts = jnp.moveaxis(x.reshape((x.shape[0], groups, share, *x.shape[2:])), 1, 0)
    kernels = w.reshape((groups, w.shape[0] // groups, *w.shape[1:]))

    def of_group(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        return _native(windows, 1, *pair, precision)

    made = lax.map(of_group, (parts, kernels))
    return jnp.moveaxis(made, 0, 1).reshape((x.shape[0], w.shape[0], *windows.counts))


def _native(
    windows: Windows, groups: int, x: jax.Array, w: jax.Array, precision: lax.Precision
) -> jax.Array:
    spatial = "DHW"[-len(windows.sizes) :]
    return lax.conv_general_dilated(
        x,
        w,
        windows.strides,
        windows.pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=groups,
        precision=precision,
    )


def _shifted(windows: Windows, x: jax.Array, w: jax.Array) -> jax.Array:
    """A kernel for each channel: what stands at each of its positions, times its number there."""
    padded = jnp.pad(x, windows.padded())
    if w.shape[0] > x.shape[1]:
        padded = jnp.repeat(padded, w.shape[0] // x.shape[1], axis=1)
    column = (-1, *[1] * len(windows.sizes))
    y = jnp.zeros((x.shape[0], w.shape[0], *windows.counts), x.dtype)
    for offset in windows.offsets():
        number = w[(slice(None), 0, *offset)].reshape(column)
        y = y + padded[windows.slices(offset)] * number
    return y


def _transposed(
    stamps: Stamps,
    groups: int,
    x: jax.Array,
    w: jax.Array,
    precision: lax.Precision = lax.Precision.HIGHEST,
) -> jax.Array:
    """By the convolution with the turned kernel of x with zeros between its elements."""
    share, spatial = w.shape[1], "DHW"[-len(stamps.sizes) :]
    turned = w.reshape((groups, w.shape[0] // groups, *w.shape[1:])).swapaxes(1, 2)
    turned = turned.reshape((groups * share, w.shape[0] // groups, *stamps.sizes))
    return lax.conv_general_dilated(
        x,
        lax.rev(turned, range(2, w.ndim)),
        [1] * len(stamps.sizes),
        stamps.margins,
        lhs_dilation=stamps.strides,
        rhs_dilation=stamps.dilations,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=groups,
        precision=precision,
    )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(convolve: Convolve, x: jax.Array, w: jax.Array) -> jax.Array:
    return _convolve_rounded(convolve, round_f32(x), round_f32(w))


def _convolve_rounded(convolve: Convolve, x: jax.Array, w: jax.Array) -> jax.Array:
    """Of f32 that are bf16 already, which TF32 multiplies exactly and sums in f32."""
    return convolve(x, w, precision=lax.Precision.DEFAULT)


def _forward(
    convolve: Convolve, x: jax.Array, w: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    x, w = round_f32(x), round_f32(w)
    kept = (x.astype(jnp.bfloat16), w.astype(jnp.bfloat16))
    return _convolve_rounded(convolve, x, w), kept


def _backward(
    convolve: Convolve, kept: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    operands = [array.astype(jnp.float32) for array in kept]
    _, pull = jax.vjp(partial(_convolve_rounded, convolve), *operands)
    x, w = pull(round_f32(cotangent))
    return x, w


_rounded.defvjp(_forward, _backward)
