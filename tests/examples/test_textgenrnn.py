"""textgenrnn: the next characters are those of its Keras graph in torch, with weights as Keras
converts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.real import relative_difference
from support.recognised import Recognised

h5py = pytest.importorskip("h5py")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.real

TEXTS = (
    "The United States of Americ",
    "<s>",
    "What is the best way to",
    "\N{SNOWMAN}!",
    "",
)
WINDOW = 40


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return fetch_model("textgenrnn")


@pytest.fixture(scope="module")
def vocabulary(files: dict[str, Path]) -> dict[str, int]:
    found: dict[str, int] = json.loads(files["vocab.json"].read_text())
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Recognised:
    directory = tmp_path_factory.mktemp("textgenrnn")
    return Recognised("textgenrnn", directory, weights=str(files["weights.hdf5"]))


def encoded(texts: list[str], vocabulary: dict[str, int]) -> dict[str, Array]:
    """As `textgenrnn_encode_sequence`: <s> before a text, and zeros before that."""
    ids = np.zeros((len(texts), WINDOW), np.int32)
    for row, text in zip(ids, texts, strict=True):
        characters = [text] if text == "<s>" else ["<s>", *text]
        known = [vocabulary.get(c, 0) for c in characters][-WINDOW:]
        row[len(row) - len(known) :] = known
    return {"inputs": ids}


def keras_lstm(weights: Any) -> Any:
    """torch's layer, of weights that Keras converts from a CuDNNLSTM's to an LSTM's, which is
    `_convert_rnn_weights` in its `saving/hdf5_format.py`."""
    kernel, recurrent, bias = (
        weights[name][...] for name in ("kernel:0", "recurrent_kernel:0", "bias:0")
    )
    kernel = np.hstack([k.T.reshape(k.shape, order="F") for k in np.hsplit(kernel, 4)])
    recurrent = np.hstack([k.T for k in np.hsplit(recurrent, 4)])
    bias = np.sum(np.split(bias, 2, axis=0), axis=0)
    layer = torch.nn.LSTM(len(kernel), len(recurrent), batch_first=True)
    # Keras multiplies from the left, and its gates are i, f, c and o, as torch's are
    ours = {"weight_ih_l0": kernel.T, "weight_hh_l0": recurrent.T, "bias_ih_l0": bias}
    ours["bias_hh_l0"] = np.zeros_like(bias)
    layer.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in ours.items()})
    return layer


@pytest.fixture(scope="module")
def theirs(files: dict[str, Path]) -> Any:
    """`textgenrnn_model` of the package's model.py, layer by layer in torch."""
    with h5py.File(files["weights.hdf5"]) as file:
        layers = [keras_lstm(file[f"rnn_{i}/rnn_{i}"]) for i in (1, 2)]
        embeddings, attention, kernel, bias = (
            torch.from_numpy(file[name][...])
            for name in (
                *("embedding/embedding/embeddings:0", "attention/attention/attention_W:0"),
                *("output/output/kernel:0", "output/output/bias:0"),
            )
        )

    def predict(ids: Array) -> Array:
        with torch.no_grad():
            embedded = embeddings[torch.from_numpy(ids.astype(np.int64))]
            first, _ = layers[0](embedded)
            second, _ = layers[1](first)
            x = torch.cat([embedded, first, second], -1)
            # AttentionWeightedAverage.call
            logits = (x @ attention)[..., 0]
            ai = torch.exp(logits - logits.max(-1, keepdim=True).values)
            att_weights = ai / (ai.sum(1, keepdim=True) + 1e-7)
            result = (x * att_weights[..., None]).sum(1)
            made: Array = torch.softmax(result @ kernel + bias, -1).numpy()
            return made

    return predict


def test_torch_computes_what_keras_does(files: dict[str, Path]) -> None:
    """`LSTMCell.call` of Keras in NumPy, with the sigmoid that the package asks for."""
    x = np.random.default_rng(2).standard_normal((2, 7, 100)).astype(np.float32)
    with h5py.File(files["weights.hdf5"]) as file:
        layer = keras_lstm(file["rnn_1/rnn_1"])
    kernel, recurrent = layer.weight_ih_l0.detach().numpy().T, layer.weight_hh_l0.detach().numpy().T
    bias = layer.bias_ih_l0.detach().numpy()
    h = c = np.zeros((2, 128), np.float32)
    for step in range(7):
        z = x[:, step] @ kernel + h @ recurrent + bias
        i, f, candidate, o = np.split(z, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(candidate)
        h = o * np.tanh(c)
    with torch.no_grad():
        sequence, _ = layer(torch.from_numpy(x))
    np.testing.assert_allclose(sequence[:, -1].numpy(), h, rtol=0, atol=1e-5)


def test_equal_to_the_graph_of_the_package(
    ours: Recognised, theirs: Any, vocabulary: dict[str, int], record_property: Any
) -> None:
    inputs = encoded(list(TEXTS), vocabulary)
    found = ours.run(inputs)["output"]
    difference = relative_difference(found, theirs(inputs["inputs"]))
    record_property("largest relative difference", difference)
    assert difference < 1e-5
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


def test_it_has_learned_to_spell(ours: Recognised, vocabulary: dict[str, int]) -> None:
    """Weights in a wrong order would give the same numbers to both, and no words."""
    characters = {number: character for character, number in vocabulary.items()}
    best = ours.run(encoded(["The United States of Americ", "What is the best w"], vocabulary))
    assert [characters[int(row.argmax())] for row in best["output"]] == ["a", "a"]
    text = "What is the best"
    for _ in range(24):
        (row,) = ours.run(encoded([text], vocabulary))["output"]
        text += characters[int(row.argmax())]
    assert text == "What is the best state of the state of t"


def test_bf16_products(ours: Recognised, vocabulary: dict[str, int]) -> None:
    ours.check_bf16(encoded(list(TEXTS), vocabulary))
