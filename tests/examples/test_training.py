"""The examples that train: a few steps of each here, and with SEXPGPU_TRAINING all of them.

All of them takes a quarter of an hour, and holds each to what docs/training.md says of it.  What
comes out of the few steps is exported, verified, served and called.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.types import Array
from sexpgpu.export.onnx.session import Session
from sexpgpu.export.subject import from_checkpoint
from sexpgpu.serve import Client
from sexpgpu.tools.fetch_models import fetch_model
from support.real import EXAMPLES
from support.serving import serve_process

pytest.importorskip("jax")
pytest.importorskip("optax")

from sexpgpu.tools.train.evaluate import evaluate_checkpoint
from support.training import train

pytestmark = [
    pytest.mark.real,
    # A server is started by fork and exec, with nothing between them.
    pytest.mark.filterwarnings("ignore:os.fork"),
]
whole = pytest.mark.skipif(
    not os.environ.get("SEXPGPU_TRAINING"), reason="minutes of training: set SEXPGPU_TRAINING"
)


@pytest.fixture(scope="module")
def text() -> Path:
    return fetch_model("shakespeare")["text.txt"]


@pytest.fixture
def excerpt(text: Path, tmp_path: Path) -> Path:
    """Enough of it for a few steps."""
    file = tmp_path / "excerpt.txt"
    file.write_text(text.read_text("utf-8")[:300_000], "utf-8")
    return file


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data("digits", tmp_path_factory.mktemp("digits") / "digits.npz")


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The knobs of the fine-tuning that say where files are."""
    file = write_data("topics", tmp_path_factory.mktemp("topics") / "topics.npz")
    return {"file": str(file), "weights": str(fetch_model("minilm")["model.safetensors"])}


def write_data(script: str, file: Path) -> Path:
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file


def trained(name: str, folder: Path, **knobs: Any) -> dict[str, float]:
    """The evaluation at the end of a run into `folder`."""
    outcome, _ = train(EXAMPLES / f"{name}.sx", folder, knobs=knobs)
    return dict(outcome.evaluation)


@contextmanager
def served(checkpoints: Path, folder: Path) -> Iterator[tuple[Client, Session]]:
    """A client of the model that was trained, exported and verified, and the model at hand."""
    export_model(from_checkpoint(str(checkpoints), trained=False), folder / "out", ExportOptions())
    session = Session(folder / "out" / "model.onnx")
    with serve_process(folder / "out", folder / "s") as server, Client(server.path) as client:
        yield client, session


def next_characters(folder: Path, content: str) -> Array:
    """What a server of the model that was trained in `folder` gives for the first characters."""
    tokens = tokens_of(content[:64], content)
    with served(folder / "run", folder) as (client, session):
        logits = client.call(tokens)
        np.testing.assert_array_equal(logits, session.run({"inputs": tokens})["output"])
    return np.asarray(logits)


def tokens_of(text: str, content: str) -> Array:
    """[1, characters], by the vocabulary of all content."""
    vocabulary = sorted(set(content))
    return np.array([[vocabulary.index(character) for character in text]], np.int32)


def test_shakespeare(
    excerpt: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A smaller one learns which characters are frequent, and a little of what follows what."""
    small = {"dim": 64, "heads": 2, "depth": 1, "steps": 200}
    found = trained("shakespeare", tmp_path / "run", file=str(excerpt), **small)
    content = excerpt.read_text("utf-8")
    assert found["loss"] < 0.95 * conditional_entropy(content, 0)
    assert next_characters(tmp_path, content).shape == (1, 64, 84)
    # a client's text, cold enough that every character is the likeliest
    script = load_script("verse")
    monkeypatch.setattr(script, "fetch_model", lambda name: {"text.txt": excerpt})
    monkeypatch.setattr(script, "TEMPERATURE", 1e-9)
    with serve_process(tmp_path / "run", tmp_path / "at", "--at") as server:
        script.main(server.path, "The king", "12")
    shown = capsys.readouterr().out.removesuffix("\n")
    assert shown.startswith("The king")
    tokens = tokens_of(shown, content)
    assert tokens.shape == (1, 20)
    padded = np.zeros((1, 64), np.int32)
    padded[:, :20] = tokens
    rows = Session(tmp_path / "out" / "model.onnx").run({"inputs": padded})["output"]
    np.testing.assert_array_equal(rows[0, 7:19].argmax(-1), tokens[0, 8:])


def test_lstm(excerpt: Path, tmp_path: Path) -> None:
    found = trained("lstm", tmp_path / "run", file=str(excerpt), hidden=32, steps=60)
    content = excerpt.read_text("utf-8")
    assert found["loss"] < 0.95 * conditional_entropy(content, 0)
    assert found["bits-per-character"] == pytest.approx(found["loss"] / math.log(2))
    assert next_characters(tmp_path, content).shape == (1, 64, 84)


def test_digits(digits: Path, tmp_path: Path) -> None:
    """The checkpoint gives the numbers of the run."""
    found = trained("digits", tmp_path / "run", file=str(digits), width=16, steps=100)
    assert found["accuracy"] > 0.9
    program, where = EXAMPLES / "digits.sx", str(tmp_path / "run")
    again = evaluate_checkpoint(program, where, trained=False, precisions=["f32"])
    assert again.metrics == {"f32": found}
    data = np.load(digits)
    with served(tmp_path / "run", tmp_path) as (client, _):
        logits = np.concatenate(client.call_many([[image] for image in data["image"][-100:, None]]))
    right = logits.argmax(-1) == data["digit"][-100:]
    assert right.mean() > 0.8


def test_minilm_finetune(
    topics: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few steps tell topics apart; only the head and the last layer are in a checkpoint."""
    found = trained("minilm-finetune", tmp_path / "run", **topics, steps=8)
    assert found["accuracy"] > 0.6
    (weights,) = (tmp_path / "run").glob("step-*/params.safetensors")
    assert weights.stat().st_size < 8e6 < Path(topics["weights"]).stat().st_size / 10
    script, sentences = load_script("topics"), ("Stir the soup.", "He lost the ball again.")
    with served(tmp_path / "run", tmp_path) as (_, session):
        script.ask(str(tmp_path / "s"), *sentences)
    for line, sentence in zip(capsys.readouterr().out.splitlines(), sentences, strict=True):
        ids = script.tokenize(sentence, script.vocabulary())
        tokens, mask = (part[None] for part in script.padded(ids, script.WINDOW))
        logits = session.run({"inputs.0": tokens, "inputs.1": mask})["output"]
        assert line == f"{script.TOPICS[logits.argmax()]:7} {sentence}"


def load_script(name: str) -> ModuleType:
    """A script of the examples, which imports others beside it."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        spec.loader.exec_module(module)
    return module


def conditional_entropy(text: str, order: int) -> float:
    """Nats for a character of the text, of whose own counts given the `order` ones before it.

    No model that looks back so far only is better on this text.
    """
    longer = Counter(text[i : i + order + 1] for i in range(len(text) - order))
    shorter = Counter(text[i : i + order] for i in range(len(text) - order))
    return sum(
        count * math.log(shorter[piece[:order]] / count) for piece, count in longer.items()
    ) / sum(longer.values())


def held_out(text: Path) -> str:
    content = text.read_text("utf-8")
    return content[len(content) * 9 // 10 :]


@whole
def test_the_whole_gpt_is_as_good_as_nanogpt(
    text: Path, tmp_path: Path, record_property: Any
) -> None:
    torch = pytest.importorskip("torch")
    from sexpgpu.tools.bench import nanogpt

    torch.manual_seed(1337)
    setting = nanogpt.Setting()
    training, validation, symbols = nanogpt.tokens_of(text.read_text("utf-8"))
    model = nanogpt.GPT(setting, symbols)
    assert len(list(nanogpt.train(model, training, setting))) == setting.steps
    theirs = nanogpt.whole_loss(model, validation, setting)
    ours = trained("shakespeare", tmp_path / "run", file=str(text))["loss"]
    record_property("validation losses", {"nanoGPT": theirs, "sexpgpu": ours})
    assert ours < 1.02 * theirs


@whole
def test_the_whole_lstm_is_better_than_pairs_of_characters(
    text: Path, tmp_path: Path, record_property: Any
) -> None:
    ours = trained("lstm", tmp_path / "run", file=str(text))["loss"]
    pairs = conditional_entropy(held_out(text), 1)
    record_property("nats for a character", {"pairs": pairs, "lstm": ours})
    assert ours < 0.85 * pairs


@whole
def test_the_whole_classifier_knows_the_digits(
    digits: Path, tmp_path: Path, record_property: Any
) -> None:
    found = trained("digits", tmp_path / "run", file=str(digits))
    record_property("accuracy", found["accuracy"])
    assert found["accuracy"] >= 0.98


@whole
def test_the_whole_fine_tuning_knows_the_topics(
    topics: dict[str, str], tmp_path: Path, record_property: Any
) -> None:
    found = trained("minilm-finetune", tmp_path / "run", **topics)
    record_property("accuracy", found["accuracy"])
    assert found["accuracy"] >= 0.9
