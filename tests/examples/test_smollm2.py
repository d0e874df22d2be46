"""SmolLM2: logits and next tokens are those of transformers, which reads the same GGUF itself."""

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
pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")

pytestmark = pytest.mark.real

WINDOW = 32
CONTINUATION = 16
#: Prompts as tokens, since reading the tokenizer out of the file takes longer than the model.
PROMPTS = {
    # "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    "chat": [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198],
    # "The opposite of hot is"
    "opposite": [504, 7011, 282, 3380, 314],
    # "def fibonacci(n):\n"
    "program": [1604, 3987, 46477, 24, 94, 727, 198],
    # "The capital of France is"
    "capital": [504, 3575, 282, 4649, 314],
}
#: " Paris"
PARIS = 7042


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smollm2")


def export(directory: Path, name: str, **options: Any) -> Session:
    """A form of the example; it is not verified, since all of it is compared here."""
    return export_example(
        "smollm2", "model.gguf", directory / name, window=WINDOW, verify=False, **options
    )


@pytest.fixture(scope="module")
def whole(directory: Path) -> Session:
    return export(directory, "whole")


@pytest.fixture(scope="module")
def at(directory: Path) -> Session:
    return export(directory, "at", at=True)


@pytest.fixture(scope="module")
def model() -> Any:
    """transformers' Llama; it turns the file's q and k into its own order."""
    file = fetch_model("smollm2")["model.gguf"]
    return transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()


@pytest.fixture(scope="module")
def tokens() -> Array:
    """The prompts, a record each, padded to the window with what no prompt sees."""
    return np.array([prompt + [0] * (WINDOW - len(prompt)) for prompt in PROMPTS.values()], "i4")


LENGTHS = np.array([len(prompt) for prompt in PROMPTS.values()], np.int32)
#: Where the prompts are. Padding repeats one token, and its logits are ill-conditioned: both
#: programs are 1e-4 from what transformers gives in f64 there, and 2e-6 over the prompts.
IS_PROMPT = np.arange(WINDOW) < LENGTHS[:, None]


def expected_logits(model: Any, tokens: Array) -> Array:
    with torch.no_grad():
        logits: Array = model(input_ids=torch.from_numpy(tokens.astype(np.int64))).logits.numpy()
    return logits


def test_logits_equal_transformers(
    whole: Session, model: Any, tokens: Array, record_property: Any
) -> None:
    found = whole.run({"inputs": tokens})["output"]
    expected = expected_logits(model, tokens)
    difference = relative_difference(found[IS_PROMPT], expected[IS_PROMPT])
    record_property("largest relative difference", difference)
    assert difference < 1e-5
    assert relative_difference(found, expected) < 1e-3
    np.testing.assert_array_equal(found.argmax(-1)[IS_PROMPT], expected.argmax(-1)[IS_PROMPT])


def test_greedy_continuation_equals_transformers(at: Session, model: Any, tokens: Array) -> None:
    """Every token of ours is the one that transformers puts first after those before it."""
    written, records = tokens.copy(), np.arange(len(tokens))
    for step in range(CONTINUATION):
        last = LENGTHS + step - 1
        rows = at.run({"inputs": written, "at": last.astype(np.int32)})["output"]
        written[records, last + 1] = rows[:, 0].argmax(-1)
    best = expected_logits(model, written).argmax(-1)
    for record, length in enumerate(LENGTHS):
        ours = written[record, length : length + CONTINUATION]
        theirs = best[record, length - 1 : length + CONTINUATION - 1]
        np.testing.assert_array_equal(ours, theirs)


def test_it_knows_the_capital_of_france(at: Session, tokens: Array) -> None:
    record = list(PROMPTS).index("capital")
    row = at.run({"inputs": tokens[[record]], "at": LENGTHS[[record]] - 1})["output"]
    assert row.argmax() == PARIS


def test_one_position_has_the_bits_of_the_window(
    whole: Session, at: Session, tokens: Array
) -> None:
    """One record at a time, as a server calls it, at the beginning, the last token and the end."""
    for record, length in zip(tokens[:2, None], LENGTHS, strict=False):
        window = whole.run({"inputs": record})["output"]
        for position in (0, length - 1, WINDOW - 1):
            row = at.run({"inputs": record, "at": np.array([position], np.int32)})["output"]
            np.testing.assert_array_equal(row[0, 0], window[0, position])


def test_bf16_products(
    directory: Path, whole: Session, tokens: Array, record_property: Any
) -> None:
    """Products of bf16 move the logits by some of bf16's 2^-8, and few of the next tokens.

    transformers' own bf16, where all else is bf16 as well, is three times as far from f32.
    """
    rounded = export(directory, "bf16", precision="bf16")
    expected = whole.run({"inputs": tokens})["output"][IS_PROMPT]
    found = rounded.run({"inputs": tokens})["output"][IS_PROMPT]
    difference = relative_difference(found, expected)
    same = (found.argmax(-1) == expected.argmax(-1)).mean()
    record_property("largest relative difference", difference)
    record_property("share of next tokens that are the same", float(same))
    assert 1e-4 < difference < 2.0**-5
    assert same > 0.9
