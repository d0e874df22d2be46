"""What runs along an axis without steps, and what reads images, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sexpgpu.export.graph.axes import trace_axes
from sexpgpu.export.graph.types import Array
from sexpgpu.export.operations.operation import Apart, Causal
from support.layers import BATCH, Layer
from support.programs import traced

LENGTHS = [1, 2, 5, 8, 9]
RUNNING: dict[str, Callable[[Array], Array]] = {
    "cumprod": lambda x: np.cumprod(x, 1),
    "cummax": lambda x: np.maximum.accumulate(x, 1),
    "cummin": lambda x: np.minimum.accumulate(x, 1),
    "logcumsumexp": lambda x: np.log(np.cumsum(np.exp(x), 1)),
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", RUNNING)
def test_running(name: str, length: int) -> None:
    layer = Layer("(linear 4 4)", f"x (list f32 {length} 4)", call=f"({name} (m x) :axis 1)")
    layer.is_close_to(RUNNING[name](layer.x @ layer["w"] + layer["b"]))


@pytest.mark.parametrize("length", LENGTHS)
def test_linear_recurrence(length: int) -> None:
    fields = (f"x (list f32 {length} 4)", f"a (list f32 {length} 4)")
    layer = Layer("(linear 4 4)", *fields, call="(linear-recurrence a (m x))")
    b, a, h = layer.x @ layer["w"] + layer["b"], layer.inputs[1], np.zeros((BATCH, 4))
    states = []
    for t in range(length):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    layer.is_close_to(np.stack(states, 1))


def test_an_order_is_kept() -> None:
    """What is associative need not be the same both ways: the last that is not 0."""
    layer = Layer(
        "(linear 1 1)",
        "x (list f32 7)",
        call="(associative-scan (fn (a b) (where (= b 0) a b)) (* (max (get m :b)) (relu x)) 0)",
    )
    x = np.maximum(layer.x, 0) * layer["b"][0]
    for record in x:
        for t in range(1, 7):
            record[t] = record[t] or record[t - 1]
    layer.is_close_to(x)


def test_logaddexp_of_infinities() -> None:
    layer = Layer("(linear 1 1)", "x (list f32 1)", call="(+ (m x) (logaddexp -inf -inf))")
    assert np.isneginf(layer.found).all()


def test_associative_scan_is_causal() -> None:
    graph, _ = traced(
        "(def record (fields :x (list f32 6 4)))\n"
        "(defn model (x) (linear-recurrence (sigmoid x) (cumprod x :axis 1)))"
    )
    states = trace_axes(graph, {graph.inputs[0]: Apart(1)}, causal=True)
    assert [states[value] for value in graph.outputs.values()] == [Causal(1)]


def test_lower_triangle() -> None:
    for more in (-1, 0, 2):
        call = f"(* (m x) (cast (lower-triangle 4 :more {more}) f32))"
        layer = Layer("(linear 4 4)", "x (list f32 4 4)", call=call)
        layer.is_close_to(np.tril(layer.x @ layer["w"] + layer["b"], more))


IMAGE = "x (list f32 4 6 5)"


def scaled(layer: Layer) -> Array:
    return layer.x * layer["b"][0]


def sampled(call: str, *fields: str) -> Layer:
    """A function of images, of an image times a parameter."""
    x = "(let (x (* x (max (get m :b)))) " + call + ")"
    return Layer("(linear 1 1)", *(fields or (IMAGE,)), call=x)


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 3)])
def test_unfold(stride: int, padding: int, dilation: int) -> None:
    options = f":stride {stride} :padding {padding} :dilation {dilation}"
    layer = sampled(f"(unfold x 2 {options})")
    x = np.pad(scaled(layer), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    rows, columns = (range(0, n - dilation, stride) for n in x.shape[2:])
    windows = [
        x[:, :, i : i + dilation + 1 : dilation, j : j + dilation + 1 : dilation].reshape(BATCH, -1)
        for i in rows
        for j in columns
    ]
    layer.is_close_to(np.stack(windows, -1))


def test_pixel_shuffle() -> None:
    layer = sampled("(pixel-shuffle x 2)", "x (list f32 8 3 2)")
    x, wanted = scaled(layer), np.zeros((BATCH, 2, 6, 4))
    for b, c, i, j, di, dj in np.ndindex(BATCH, 2, 3, 2, 2, 2):
        wanted[b, c, 2 * i + di, 2 * j + dj] = x[b, 4 * c + 2 * di + dj, i, j]
    layer.is_close_to(wanted)
    there_and_back = sampled("(pixel-unshuffle (pixel-shuffle x 2) 2)", "x (list f32 8 3 2)")
    there_and_back.is_close_to(scaled(there_and_back))


def test_adaptive_average_pool() -> None:
    layer = sampled("(adaptive-average-pool x 4 2)")
    x, wanted = scaled(layer), np.zeros((BATCH, 4, 4, 2))
    for i, j in np.ndindex(4, 2):
        rows = slice(i * 6 // 4, -(-(i + 1) * 6 // 4))
        columns = slice(j * 5 // 2, -(-(j + 1) * 5 // 2))
        wanted[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
    layer.is_close_to(wanted)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("border", [False, True])
def test_grid_sample(align: bool, border: bool) -> None:
    options = f":align-corners {str(align).lower()} :border {str(border).lower()}"
    layer = sampled(f"(grid-sample x g {options})", IMAGE, "g (list f32 3 2 2)")
    image, grid = scaled(layer), layer.inputs[1].astype(np.float64)
    assert (abs(grid) > 1).any(), "some points lie outside"
    wanted = np.zeros((BATCH, 4, 3, 2))
    for b, i, j in np.ndindex(BATCH, 3, 2):
        place = []
        for g, size in zip(grid[b, i, j], (5, 6), strict=True):
            u = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
            place.append(min(max(u, 0), size - 1) if border else u)
        for column in range(5):
            for row in range(6):
                share = max(0, 1 - abs(place[0] - column)) * max(0, 1 - abs(place[1] - row))
                wanted[b, :, i, j] += share * image[b, :, row, column]
    layer.is_close_to(wanted)


@pytest.mark.parametrize("length", [1, 5])
def test_segment_sums(length: int) -> None:
    layer = Layer(
        "(linear 4 4)", f"x (list f32 {length} 4)", call="(segment-sums (transpose (m x)))"
    )
    x = (layer.x @ layer["w"] + layer["b"]).swapaxes(1, 2)
    wanted = np.full((BATCH, 4, length, length), -np.inf)
    for i in range(length):
        for j in range(i + 1):
            wanted[..., i, j] = x[..., j + 1 : i + 1].sum(-1)
    layer.is_close_to(wanted)
