"""What a sentence is about: the data of examples/minilm-finetune.sx, and a client of it.

    python examples/topics.py                        writes build/models/topics/topics.npz
    python examples/topics.py SOCKET "a sentence"…   asks a server of the trained model

The sentences of topics.csv become token ids as similarity.py makes them, and are shuffled, always
in the same way.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
from similarity import padded, tokenize

from sexpgpu.serve import Client
from sexpgpu.tools.fetch_models import fetch_model, models_folder

SENTENCES = Path(__file__).with_name("topics.csv")
TOPICS = ("cooking", "money", "space", "sport")
WINDOW = 32


def write(target: Path) -> None:
    """`tokens` [n, 32] i32, `mask` [n, 32] bool and `topic` [n] i32, a number of `TOPICS`."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    words = vocabulary()
    tokens, mask = zip(
        *(padded(tokenize(row["sentence"], words), WINDOW) for row in rows), strict=True
    )
    topic = np.array([TOPICS.index(row["topic"]) for row in rows], np.int32)
    order = np.random.default_rng(0).permutation(len(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, tokens=np.stack(tokens)[order], mask=np.stack(mask)[order], topic=topic[order])
    print(f"{target}: {len(rows)} sentences")


def ask(socket: str, *sentences: str) -> None:
    """Prints the topic that the model gives each sentence."""
    words = vocabulary()
    with Client(socket) as client:
        window = client.inputs[0].shape[1]
        logits = client.call_many([padded(tokenize(text, words), window) for text in sentences])
    for text, row in zip(sentences, logits, strict=True):
        print(f"{TOPICS[int(np.argmax(row))]:7}", text)


def vocabulary() -> dict[str, int]:
    """The ids of MiniLM's pieces of words."""
    found: dict[str, int] = json.loads(fetch_model("minilm")["tokenizer.json"].read_text("utf-8"))[
        "model"
    ]["vocab"]
    return found


if __name__ == "__main__":
    if len(sys.argv) > 2:
        ask(*sys.argv[1:])
    else:
        write(
            Path(sys.argv[1]) if len(sys.argv) == 2 else models_folder() / "topics" / "topics.npz"
        )
