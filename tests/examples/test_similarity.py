"""The client of MiniLM: its ids are those of BERT's tokenizer, its table that of the vectors."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sexpgpu.tools.fetch_models import fetch_model
from support.real import EXAMPLES, export_example
from support.serving import serve_process

pytestmark = pytest.mark.real

SCRIPT = EXAMPLES / "similarity.py"
WINDOW = 32

TEXTS = [
    "",
    "A cat sits on the mat.",
    "Café déjà-vu, naïve! it's x_y 3.14 $5",
    "unaffable antidisestablishmentarianism",
    "##foo 12,000 U.S.A.\n\tß ☃ 😀 ½",
]


@pytest.fixture(scope="module")
def vocabulary() -> dict[str, int]:
    found: dict[str, int] = json.loads(fetch_model("minilm")["tokenizer.json"].read_text("utf-8"))[
        "model"
    ]["vocab"]
    return found


@pytest.fixture(scope="module")
def similarity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("similarity", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", TEXTS)
def test_the_ids_are_those_of_the_tokenizer(
    similarity: ModuleType, vocabulary: dict[str, int], text: str
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(fetch_model("minilm")["tokenizer.json"]))
    tokenizer.no_padding()
    assert similarity.tokenize(text, vocabulary) == tokenizer.encode(text).ids


def test_a_record_is_padded_or_loses_its_end(similarity: ModuleType) -> None:
    tokens, mask = similarity.padded([101, 7, 102], 5)
    assert (tokens.tolist(), mask.tolist()) == ([101, 7, 102, 0, 0], [True] * 3 + [False] * 2)
    tokens, mask = similarity.padded([101, 7, 8, 9, 102], 4)
    assert (tokens.tolist(), mask.tolist()) == ([101, 7, 8, 102], [True] * 4)


def test_the_table_is_of_the_models_vectors(
    similarity: ModuleType, vocabulary: dict[str, int], tmp_path: Path
) -> None:
    directory = tmp_path / "export"
    session = export_example("minilm", "model.safetensors", directory, window=WINDOW)
    with serve_process(directory, tmp_path / "s", "--output", "embedding") as server:
        command = [sys.executable, SCRIPT, server.path]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *rows, end = done.stdout.split("\n")
    assert not end
    ids = [similarity.tokenize(text, vocabulary) for text in similarity.SENTENCES]
    tokens, masks = zip(*(similarity.padded(row, WINDOW) for row in ids), strict=True)
    inputs = {"inputs.0": np.stack(tokens), "inputs.1": np.stack(masks)}
    vectors = session.run(inputs)["embedding"]
    for row, cosines, text in zip(rows, vectors @ vectors.T, similarity.SENTENCES, strict=True):
        numbers, shown = row.split("   ")
        assert shown == text
        np.testing.assert_allclose([float(n) for n in numbers.split()], cosines, atol=0.006)


def test_it_says_how_it_is_used() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "usage: python examples/similarity.py SOCKET [SENTENCE]…\n"
