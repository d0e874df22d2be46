"""MiniLM: its tokens' and sentences' vectors are those of transformers on the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.session import Session
from sexpgpu.tools.fetch_models import fetch_model
from support.real import export_example, relative_difference

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = pytest.mark.real

WINDOW = 32
SENTENCES = (
    "A cat sits on the mat.",
    "There is a kitten upon the rug.",
    "The central bank raised interest rates by half a percentage point on Thursday.",
    "",
)


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return fetch_model("minilm")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The example, verified against the reference as every export is."""
    directory = tmp_path_factory.mktemp("minilm") / "export"
    return export_example("minilm", "model.safetensors", directory, window=WINDOW)


@pytest.fixture(scope="module")
def sentences(files: dict[str, Path]) -> dict[str, Array]:
    """Token ids and masks of the sentences, padded to the window."""
    tokenizer = tokenizers.Tokenizer.from_file(str(files["tokenizer.json"]))
    tokenizer.enable_padding(length=WINDOW)
    encoded = tokenizer.encode_batch(list(SENTENCES))
    return {
        "inputs.0": np.array([e.ids for e in encoded], np.int32),
        "inputs.1": np.array([e.attention_mask for e in encoded], bool),
    }


@pytest.fixture(scope="module")
def expected(files: dict[str, Path], sentences: dict[str, Array]) -> dict[str, Array]:
    """What transformers' BERT gives, and its mean over the tokens, of length 1."""
    model = transformers.BertModel.from_pretrained(files["model.safetensors"].parent).eval()
    tokens, mask = (torch.from_numpy(a.astype(np.int64)) for a in sentences.values())
    with torch.no_grad():
        hidden = model(input_ids=tokens, attention_mask=mask).last_hidden_state
        share = mask[..., None].float()
        mean = (hidden * share).sum(1) / share.sum(1)
        embedding = torch.nn.functional.normalize(mean)
    return {"hidden": hidden.numpy(), "embedding": embedding.numpy()}


def test_equal_to_transformers(
    session: Session,
    sentences: dict[str, Array],
    expected: dict[str, Array],
    record_property: Any,
) -> None:
    """Padding is worse to compute, and less exact in transformers too; none of it is read."""
    found, mask = session.run(sentences), sentences["inputs.1"]
    differences = {
        "hidden": relative_difference(found["hidden"][mask], expected["hidden"][mask]),
        "padding": relative_difference(found["hidden"], expected["hidden"]),
        "embedding": relative_difference(found["embedding"], expected["embedding"]),
    }
    record_property("largest relative differences", differences)
    assert max(differences["hidden"], differences["embedding"]) < 1e-5
    assert differences["padding"] < 1e-4
    cosines = (found["embedding"] * expected["embedding"]).sum(-1)
    np.testing.assert_allclose(cosines, 1, rtol=1e-6)


def test_like_sentences_are_near(session: Session, sentences: dict[str, Array]) -> None:
    embedding = session.run(sentences)["embedding"]
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=-1), 1, rtol=1e-6)
    cosines = embedding @ embedding.T
    assert cosines[0, 1] > 0.5 > 0.2 > cosines[0, 2]


def test_a_sentence_alone_has_its_vectors(session: Session, sentences: dict[str, Array]) -> None:
    together = session.run(sentences)["embedding"]
    alone = session.run({name: array[2:3] for name, array in sentences.items()})["embedding"]
    np.testing.assert_allclose(alone[0], together[2], rtol=0, atol=1e-6)


def test_a_record_of_padding_alone_is_zero(session: Session) -> None:
    padding = {"inputs.0": np.zeros((1, WINDOW), np.int32), "inputs.1": np.zeros((1, WINDOW), bool)}
    assert not session.run(padding)["embedding"].any()
