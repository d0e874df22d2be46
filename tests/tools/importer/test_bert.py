"""BERT and its heads: what is imported gives what transformers does, padding or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.importer.writing import import_model
from support.importing import WINDOW, Case, check, made, tokens

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 37, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 30, "max_position_embeddings": 20}  # fmt: skip


def case(folder: Path, head: str = "Model", **options: Any) -> Case:
    config = transformers.BertConfig(**{**SIZES, **options})
    return Case(made(f"Bert{head}", config), folder, window=WINDOW)


def texts() -> tuple[Array, Array, Array]:
    """Tokens, where they are some, and types, of records of several lengths."""
    ids = tokens(37)
    mask = np.arange(WINDOW) < np.array([[WINDOW], [5], [1]])
    types = (np.arange(WINDOW) > 2).astype(np.int32) * mask
    return ids, mask, types.astype(np.int32)


def theirs(found: Case) -> Any:
    ids, mask, types = texts()
    return found.theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)


@pytest.mark.parametrize(
    "options", [{}, {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}, {"hidden_act": "relu"}]
)
def test_hidden_states_and_pooler(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 56
    outputs, expected = found.run(*texts()), theirs(found)
    seen = texts()[1]
    check(outputs["hidden"][seen], expected.last_hidden_state[seen])
    check(outputs["pooled"], expected.pooler_output)


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification"])
def test_classes(tmp_path: Path, head: str) -> None:
    found = case(tmp_path, head, num_labels=5)
    logits, expected = found.run(*texts())["logits"], theirs(found).logits
    if head == "ForTokenClassification":
        logits, expected = (array[texts()[1]] for array in (logits, expected))
    check(logits, expected)


def test_answers(tmp_path: Path) -> None:
    case(tmp_path, "ForQuestionAnswering").check_answers(*texts())


def test_pre_training(tmp_path: Path) -> None:
    found = case(tmp_path, "ForPreTraining")
    outputs, expected = found.run(*texts()), theirs(found)
    seen = texts()[1]
    check(outputs["logits"][seen], expected.prediction_logits[seen])
    check(outputs["relation"], expected.seq_relationship_logits)


@pytest.mark.parametrize("tied", [True, False])
def test_masked_language_model(tmp_path: Path, tied: bool) -> None:
    found = case(tmp_path, "ForMaskedLM", tie_word_embeddings=tied)
    # an untied head has a bias of its own, beside one that nothing reads
    assert found.imported.unused == ([] if tied else ["cls.predictions.bias"])
    assert found.text.count("\n") <= 60
    seen = texts()[1]
    check(found.run(*texts())["logits"][seen], theirs(found).logits[seen])


def test_another_class_than_the_configuration_names(tmp_path: Path) -> None:
    found = case(tmp_path, "ForMaskedLM")
    program = tmp_path / "program.sx"
    found.imported = import_model(tmp_path / "model", program, force=True, as_class="BertModel")
    assert found.imported.notes == [
        "the file has no pooler, and the model gives each token's vector alone"
    ]
    assert all(name.startswith("cls.") for name in found.imported.unused)
    found.model = found.model.bert
    seen = texts()[1]
    check(found.run(*texts())["hidden"][seen], theirs(found).last_hidden_state[seen])


def test_one_type_of_text_is_no_input(tmp_path: Path) -> None:
    found = case(tmp_path, type_vocab_size=1)
    ids, mask, _ = texts()
    expected = found.theirs(input_ids=ids, attention_mask=mask)
    check(found.run(ids, mask)["pooled"], expected.pooler_output)
