"""RoBERTa and its kin: what is imported gives what transformers does, padding or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.export.subject import from_program
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.writing import import_model
from support.importing import WINDOW, Case, check, made, tokens

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 37, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 30, "max_position_embeddings": 20, "type_vocab_size": 1}  # fmt: skip
FAMILIES = ["Roberta", "XLMRoberta", "Camembert"]


def case(folder: Path, head: str = "Model", family: str = "Roberta", **options: Any) -> Case:
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **options})
    return Case(made(f"{family}{head}", config), folder, window=WINDOW)


def texts(padding: int = 1) -> tuple[Array, Array]:
    """Tokens and where they are some, of records of several lengths, with padding behind them."""
    ids = tokens(37)
    ids[ids == padding] = 36
    mask = np.arange(WINDOW) < np.array([[WINDOW], [5], [1]])
    return np.where(mask, ids, padding).astype(np.int32), mask


def theirs(found: Case, padding: int = 1) -> Any:
    ids, mask = texts(padding)
    return found.theirs(input_ids=ids, attention_mask=mask)


def check_states(found: Case, padding: int = 1) -> None:
    ids, mask = texts(padding)
    outputs, expected = found.run(ids, mask), theirs(found, padding)
    check(outputs["hidden"][mask], expected.last_hidden_state[mask])
    check(outputs["pooled"], expected.pooler_output)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_and_pooler(tmp_path: Path, family: str) -> None:
    found = case(tmp_path, family=family)
    assert (found.imported.notes, found.imported.unknown, found.imported.unused) == ([], [], [])
    assert found.text.count("\n") <= 56
    assert "tokens of a record, at most 18" in found.text
    check_states(found)


@pytest.mark.parametrize(
    ("options", "padding"),
    [
        ({"hidden_act": "relu", "layer_norm_eps": 1e-3}, 1),
        ({"pad_token_id": 0}, 0),
        ({"pad_token_id": 7}, 7),
    ],
    ids=str,
)
def test_settings(tmp_path: Path, options: dict[str, Any], padding: int) -> None:
    check_states(case(tmp_path, **options), padding)


def test_two_types_of_text(tmp_path: Path) -> None:
    found = case(tmp_path, type_vocab_size=2)
    ids, mask = texts()
    types = (np.arange(WINDOW) > 2).astype(np.int32) * mask
    expected = found.theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)
    check(found.run(ids, mask, types.astype(np.int32))["pooled"], expected.pooler_output)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification"])
def test_classes(tmp_path: Path, family: str, head: str) -> None:
    found = case(tmp_path, head, family, num_labels=5)
    assert (found.imported.notes, found.imported.unused) == ([], [])
    ids, mask = texts()
    logits, expected = found.run(ids, mask)["logits"], theirs(found).logits
    if head == "ForTokenClassification":
        logits, expected = logits[mask], expected[mask]
    check(logits, expected)


def test_answers(tmp_path: Path) -> None:
    case(tmp_path, "ForQuestionAnswering").check_answers(*texts())


@pytest.mark.parametrize(
    "options",
    [{}, {"tie_word_embeddings": False}, {"hidden_act": "relu", "layer_norm_eps": 1e-3}],
    ids=str,
)
def test_masked_language_model(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, "ForMaskedLM", **options)
    # an untied head has a bias of its own, beside one that nothing reads
    tied = options.get("tie_word_embeddings", True)
    assert found.imported.unused == ([] if tied else ["lm_head.bias"])
    ids, mask = texts()
    check(found.run(ids, mask)["logits"][mask], theirs(found).logits[mask])


def test_another_class_than_the_configuration_names(tmp_path: Path) -> None:
    found = case(tmp_path, "ForMaskedLM", "XLMRoberta")
    program = tmp_path / "program.sx"
    found.imported = import_model(
        tmp_path / "model", program, force=True, as_class="XLMRobertaModel"
    )
    assert found.imported.notes == [
        "the file has no pooler, and the model gives each token's vector alone"
    ]
    found.model = found.model.roberta
    ids, mask = texts()
    check(found.run(ids, mask)["hidden"][mask], theirs(found).last_hidden_state[mask])


def test_there_are_fewer_positions_than_vectors_for_them(tmp_path: Path) -> None:
    found = case(tmp_path)
    from_program(found.imported.program, knobs={"window": 18})
    with pytest.raises(SexpgpuError) as caught:
        from_program(found.imported.program, knobs={"window": 19})
    assert caught.value.code == "E-ASSERT-001"
    assert caught.value.message.endswith("there are vectors for 18 positions, and 19 came")
