"""ALBERT and its heads: what is imported gives what transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from support.importing import WINDOW, Case, check, made, tokens

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 37,
    "embedding_size": 10,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 30,
    "max_position_embeddings": 20,
}


def case(folder: Path, head: str = "Model", **options: Any) -> Case:
    config = transformers.AlbertConfig(**{**SIZES, **options})
    return Case(made(f"Albert{head}", config), folder, window=WINDOW)


def texts() -> tuple[Array, Array, Array]:
    ids = tokens(37)
    mask = np.arange(WINDOW) < np.array([[WINDOW], [5], [1]])
    return ids, mask, (ids % 2 * mask).astype(np.int32)


def theirs(found: Case) -> Any:
    ids, mask, types = texts()
    return found.theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_hidden_groups": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-3},
        {"num_hidden_groups": 3, "num_hidden_layers": 4},
        {"inner_group_num": 2, "num_hidden_layers": 3},
    ],
    ids=str,
)
def test_shared_layers(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= (60 if options == {} else 66)
    outputs, expected = found.run(*texts()), theirs(found)
    seen = texts()[1]
    check(outputs["hidden"][seen], expected.last_hidden_state[seen])
    check(outputs["pooled"], expected.pooler_output)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("ForSequenceClassification", {"num_labels": 5}),
        ("ForTokenClassification", {"num_labels": 5}),
        ("ForMaskedLM", {}),
        ("ForMaskedLM", {"tie_word_embeddings": False}),
    ],
)
def test_heads(tmp_path: Path, head: str, options: dict[str, Any]) -> None:
    found = case(tmp_path, head, **options)
    logits, expected = found.run(*texts())["logits"], theirs(found).logits
    if head != "ForSequenceClassification":
        logits, expected = (array[texts()[1]] for array in (logits, expected))
    check(logits, expected)


def test_answers(tmp_path: Path) -> None:
    case(tmp_path, "ForQuestionAnswering").check_answers(*texts())


def test_pre_training(tmp_path: Path) -> None:
    found = case(tmp_path, "ForPreTraining")
    outputs, expected = found.run(*texts()), theirs(found)
    seen = texts()[1]
    check(outputs["logits"][seen], expected.prediction_logits[seen])
    check(outputs["relation"], expected.sop_logits)
