"""g2p: its encoder, its decoder and the words it speaks are those of g2p-en's own code."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.package_code import definitions
from support.real import relative_difference
from support.recognised import Recognised

pytestmark = pytest.mark.real

WORDS = ("activationist", "sexp", "kubernetes", "a", "onnx", "phonemization", "y" * 31, "don't")
WINDOW = 32
END = 3


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return fetch_model("g2p")


@pytest.fixture(scope="module")
def theirs(files: dict[str, Path]) -> Any:
    """The package's G2p, whose dictionary, in which it looks words up first, is empty."""
    code = definitions(
        files["g2p.py"],
        "G2p",
        np=np,
        os=os,
        dirname=str(files["checkpoint20.npz"].parent),
        cmudict=SimpleNamespace(dict=dict),
        construct_homograph_dictionary=dict,
    )
    return code.G2p()


@pytest.fixture(scope="module")
def words(theirs: Any) -> dict[str, Array]:
    """Behind a word's </s> stand letters that nothing may read."""
    letters = np.resize(np.arange(29, dtype=np.int32), (len(WORDS), WINDOW))
    for row, word in zip(letters, WORDS, strict=True):
        ids = [theirs.g2idx.get(c, theirs.g2idx["<unk>"]) for c in (*word, "</s>")]
        row[: len(ids)] = ids
    lengths = np.array([len(word) + 1 for word in WORDS], np.int32)
    return {"inputs.0": letters, "inputs.1": lengths}


@pytest.fixture(scope="module")
def parts(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]
) -> dict[str, Recognised]:
    directory, weights = tmp_path_factory.mktemp("g2p"), str(files["checkpoint20.npz"])
    return {
        part: Recognised("g2p", directory / part, weights=weights, part=part)
        for part in ("encoder", "decoder", "whole")
    }


def encoded(theirs: Any, word: str) -> Array:
    """The state after a word, as the package's `predict` finds it."""
    weights = [getattr(theirs, f"enc_{name}") for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    states: Array = theirs.gru(theirs.encode(word), len(word) + 1, *weights)
    return states[0, -1]


def test_the_encoder(
    parts: dict[str, Recognised], theirs: Any, words: dict[str, Array], record_property: Any
) -> None:
    found = parts["encoder"].run(words)["output"]
    expected = np.stack([encoded(theirs, word) for word in WORDS])
    difference = relative_difference(found, expected)
    record_property("largest relative difference", difference)
    assert difference < 1e-5


def test_a_step_of_the_decoder(
    parts: dict[str, Recognised], theirs: Any, words: dict[str, Array], record_property: Any
) -> None:
    phonemes = np.array([2, 5, 9, 73, 0, 41, 1, 3], np.int32)
    state = np.stack([encoded(theirs, word) for word in WORDS])
    found = parts["decoder"].run({"inputs.0": phonemes, "inputs.1": state})
    weights = [getattr(theirs, f"dec_{name}") for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    after = theirs.grucell(theirs.dec_emb[phonemes], state, *weights)
    expected = {"logits": after @ theirs.fc_w.T + theirs.fc_b, "state": after}
    differences = {name: relative_difference(found[name], expected[name]) for name in expected}
    record_property("largest relative differences", differences)
    assert max(differences.values()) < 1e-5


def named(theirs: Any, phonemes: list[int]) -> list[str]:
    return [theirs.idx2p[int(phoneme)] for phoneme in phonemes]


def test_a_client_speaks_as_the_package_does(
    parts: dict[str, Recognised], theirs: Any, words: dict[str, Array]
) -> None:
    """The encoder's state and <s> go in, then what came out, up to </s>."""
    states = parts["encoder"].run(words)["output"]
    for word, state in zip(WORDS, states, strict=True):
        phoneme, spoken = 2, list[int]()
        for _ in range(20):
            step = {"inputs.0": np.array([phoneme], np.int32), "inputs.1": state[None]}
            after = parts["decoder"].run(step)
            phoneme, state = int(after["logits"].argmax()), after["state"][0]
            if phoneme == END:
                break
            spoken.append(phoneme)
        assert named(theirs, spoken) == theirs.predict(word)


def test_the_whole_speaks_as_the_package_does(
    parts: dict[str, Recognised], theirs: Any, words: dict[str, Array]
) -> None:
    found = parts["whole"].run(words)["output"]
    for word, row in zip(WORDS, found.tolist(), strict=True):
        assert named(theirs, row[: row.index(END) if END in row else None]) == theirs.predict(word)
        assert END not in row or set(row[row.index(END) :]) == {END}
    assert " ".join(theirs.predict("activationist")) == "AE2 K T IH0 V EY1 SH AH0 N IH0 S T"


def test_bf16_products(parts: dict[str, Recognised], words: dict[str, Array]) -> None:
    parts["encoder"].check_bf16(words)
    state = parts["encoder"].run(words)["output"]
    parts["decoder"].check_bf16({"inputs.0": words["inputs.1"], "inputs.1": state})
