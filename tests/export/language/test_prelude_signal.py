"""The discrete Fourier transform against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from support.layers import Layer


@pytest.mark.parametrize("length", [1, 2, 7, 12, 64, 90])
def test_fourier(length: int) -> None:
    """Lengths that are prime go in one step, the others in two."""
    layer = Layer(
        "(linear 1 1)",
        f"x (list f32 {length})",
        call="(concat (fourier (* x (max (get m :b)))))",
    )
    wanted = np.fft.fft(layer.x * layer["b"][0])
    layer.is_close_to(np.concatenate([wanted.real, wanted.imag], -1))


def test_fourier_in_f64() -> None:
    layer = Layer(
        "(linear 1 1)",
        "x (list f32 24)",
        call="(concat (fourier (cast (* x (max (get m :b))) f64)))",
    )
    wanted = np.fft.fft((layer.inputs[0] * layer.weights["b"][0]).astype(np.float64))
    assert layer.found.dtype == np.float64
    np.testing.assert_allclose(
        layer.found, np.concatenate([wanted.real, wanted.imag], -1), 0, 1e-12
    )


def test_fourier_of_more_axes() -> None:
    layer = Layer("(linear 12 12)", "x (list f32 2 3 12)", call="(stack (fourier (m x)))")
    wanted = np.fft.fft(layer.x @ layer["w"] + layer["b"])
    layer.is_close_to(np.stack([wanted.real, wanted.imag], -1))


def test_frames() -> None:
    layer = Layer("(linear 1 1)", "x (list f32 11)", call="(frames (* x (max (get m :b))) 4 3)")
    x = layer.x * layer["b"][0]
    layer.is_close_to(np.stack([x[:, at : at + 4] for at in (0, 3, 6)], 1))


def test_spectrogram() -> None:
    layer = Layer(
        "(linear 1 1)", "x (list f32 50)", call="(spectrogram (* x (max (get m :b))) 16 8)"
    )
    x, window = layer.x * layer["b"][0], (1 - np.cos(2 * np.pi * np.arange(16) / 16)) / 2
    frames = np.stack([x[:, at : at + 16] for at in range(0, 35, 8)], 1)
    layer.is_close_to(abs(np.fft.rfft(frames * window)) ** 2)
