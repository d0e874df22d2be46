"""The discrete Fourier transform against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
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


@pytest.mark.parametrize("slaney", [False, True])
def test_mel_filters(slaney: bool) -> None:
    """Bands of 0 between the middles of their neighbours and of 1 at their own, and of area 1."""
    call = f"(mel-filters 8 33 16000 :low 100 :high 7000 :slaney {str(slaney).lower()})"
    layer = Layer("(linear 1 1)", "x f32", call=f"(* {call} (max (get m :b)))")
    f = np.linspace(0, 8000, 33)
    # The mels of every tenth of a hertz: what is asked of them is turned round by looking them up.
    hz = np.linspace(100, 7000, 69001)
    with np.errstate(divide="ignore"):
        curved = 15 + 27 * np.log(hz / 1000) / np.log(6.4)
    mels = np.where(hz < 1000, 3 * hz / 200, curved) if slaney else np.log10(1 + hz / 700)
    edges = np.interp(np.linspace(mels[0], mels[-1], 10), mels, hz)
    bands = np.stack(
        [np.interp(f, edges[i : i + 3], [0, 1, 0], left=0, right=0) for i in range(8)], 1
    )
    if slaney:
        bands /= (edges[2:] - edges[:-2]) / 2
    np.testing.assert_allclose(layer.found, bands * layer["b"][0], 2e-4, 2e-4 * bands.max())


@pytest.mark.parametrize("slaney", [False, True])
def test_mel_filters_are_those_of_transformers(slaney: bool) -> None:
    audio = pytest.importorskip("transformers.audio_utils")
    options = {"norm": "slaney", "mel_scale": "slaney"} if slaney else {"mel_scale": "htk"}
    call = f"(mel-filters 20 201 16000 :slaney {str(slaney).lower()})"
    layer = Layer("(linear 1 1)", "x f32", call=f"(* {call} (max (get m :b)))")
    wanted = audio.mel_filter_bank(201, 20, 0.0, 8000.0, 16000, **options) * layer["b"][0]
    np.testing.assert_allclose(layer.found, wanted, 1e-4, 1e-6)


@pytest.mark.parametrize("length", [1, 7, 12])
def test_fourier_of_complex_numbers_and_back(length: int) -> None:
    def found(call: str) -> tuple[Array, Array]:
        layer = Layer(
            "(linear 1 1)",
            f"x (list f32 2 {length})",
            call=f"(concat (let ((a b) (split (* x (max (get m :b))) 2 :axis 1)) {call}))",
        )
        real, imaginary = np.split(layer.x * layer["b"][0], 2, 1)
        made_real, made_imaginary = np.split(layer.found.astype(np.float64), 2, -1)
        return real + 1j * imaginary, made_real + 1j * made_imaginary

    x, made = found("(fourier a :imaginary b)")
    np.testing.assert_allclose(made, np.fft.fft(x), 2e-4, 2e-5)
    x, made = found("(inverse-fourier a b)")
    np.testing.assert_allclose(made, np.fft.ifft(x), 2e-4, 2e-5)
