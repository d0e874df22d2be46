"""Resemblyzer: voices' vectors are those of its own module in torch, which reads the same file."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.package_code import definitions
from support.real import relative_difference
from support.recognised import Recognised

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.real

FRAMES = 64


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return fetch_model("resemblyzer")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Recognised:
    directory = tmp_path_factory.mktemp("resemblyzer")
    weights = str(files["pretrained.pt"])
    return Recognised("resemblyzer", directory, weights=weights, frames=FRAMES)


@pytest.fixture(scope="module")
def theirs(files: dict[str, Path]) -> Any:
    """The package's module; its settings are those of its hparams.py."""
    code = definitions(
        files["voice_encoder.py"],
        "VoiceEncoder",
        torch=torch,
        nn=torch.nn,
        np=np,
        Path=Path,
        Union=typing.Union,
        List=typing.List,  # noqa: UP006
        timer=lambda: 0.0,
        mel_n_channels=40,
        model_hidden_size=256,
        model_num_layers=3,
        model_embedding_size=256,
    )
    return code.VoiceEncoder("cpu", verbose=False, weights_fpath=files["pretrained.pt"]).eval()


@pytest.fixture(scope="module")
def mels() -> dict[str, Array]:
    """Spectrograms like those of voices: energies that rise and fall, and one of silence."""
    generator = np.random.default_rng(3)
    frames = np.cumsum(generator.standard_normal((4, FRAMES, 40)), 1)
    energies = np.exp(frames / 8 - 4)
    energies[-1] = 0
    return {"inputs": energies.astype(np.float32)}


def test_equal_to_the_package(
    ours: Recognised, theirs: Any, mels: dict[str, Array], record_property: Any
) -> None:
    found = ours.run(mels)["output"]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(mels["inputs"])).numpy()
    difference = relative_difference(found, expected)
    record_property("largest relative difference", difference)
    assert difference < 1e-5
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, rtol=1e-6)
    # the voices differ, so that it means something that they are the same
    assert (np.tril(found @ found.T, -1) < 0.99).all()


def test_a_voice_alone_has_its_vector(ours: Recognised, mels: dict[str, Array]) -> None:
    alone = ours.run({"inputs": mels["inputs"][1:2]})["output"]
    np.testing.assert_allclose(alone[0], ours.run(mels)["output"][1], rtol=0, atol=1e-6)


def test_bf16_products(ours: Recognised, mels: dict[str, Array]) -> None:
    ours.check_bf16(mels)
