"""DistilBERT and its heads: what is imported gives what transformers does, padding or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.importer.writing import import_model
from support.importing import WINDOW, Case, check, made, tokens

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 37, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 30,
         "max_position_embeddings": 20}  # fmt: skip


def case(folder: Path, head: str = "Model", **options: Any) -> Case:
    config = transformers.DistilBertConfig(**{**SIZES, **options})
    return Case(made(f"DistilBert{head}", config), folder, window=WINDOW)


def texts() -> tuple[Array, Array]:
    """Tokens and where they are some, of records of several lengths."""
    return tokens(37), np.arange(WINDOW) < np.array([[WINDOW], [5], [1]])


def theirs(found: Case) -> Any:
    ids, mask = texts()
    return found.theirs(input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation": "relu"},
        {"sinusoidal_pos_embds": True},
        # transformers does not read it, and has 1e-12
        {"layer_norm_eps": 1e-3},
    ],
    ids=str,
)
def test_hidden_states(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    unknown = ["layer_norm_eps"] if "layer_norm_eps" in options else []
    assert (found.imported.notes, found.imported.unknown) == ([], unknown)
    assert found.imported.unused == []
    assert found.text.count("\n") <= 56
    ids, mask = texts()
    check(found.run(ids, mask)["hidden"][mask], theirs(found).last_hidden_state[mask])


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification"])
def test_classes(tmp_path: Path, head: str) -> None:
    found = case(tmp_path, head, num_labels=5)
    assert (found.imported.notes, found.imported.unused) == ([], [])
    ids, mask = texts()
    logits, expected = found.run(ids, mask)["logits"], theirs(found).logits
    if head == "ForTokenClassification":
        logits, expected = logits[mask], expected[mask]
    check(logits, expected)


def test_answers(tmp_path: Path) -> None:
    case(tmp_path, "ForQuestionAnswering").check_answers(*texts())


@pytest.mark.parametrize(
    "options", [{}, {"tie_word_embeddings": False}, {"activation": "relu"}], ids=str
)
def test_masked_language_model(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, "ForMaskedLM", **options)
    assert found.imported.unused == []
    ids, mask = texts()
    check(found.run(ids, mask)["logits"][mask], theirs(found).logits[mask])


def test_another_class_than_the_configuration_names(tmp_path: Path) -> None:
    found = case(tmp_path, "ForMaskedLM")
    program = tmp_path / "program.sx"
    found.imported = import_model(
        tmp_path / "model", program, force=True, as_class="DistilBertModel"
    )
    assert found.imported.notes == []
    assert all(name.startswith("vocab_") for name in found.imported.unused)
    found.model = found.model.distilbert
    ids, mask = texts()
    check(found.run(ids, mask)["hidden"][mask], theirs(found).last_hidden_state[mask])
