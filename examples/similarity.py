"""How alike sentences are: a client of examples/minilm.sx, exported and served.

    sexpgpu serve build/demo/minilm --socket build/demo/minilm.sock --output embedding
    python examples/similarity.py build/demo/minilm.sock ["a sentence"…]

The server takes token ids and gives vectors; words become ids here, as BERT's tokenizer does it for
English.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from sexpgpu.serve import Client
from sexpgpu.tools.fetch_models import models_folder

SENTENCES = (
    "A cat sits on the mat.",
    "There is a kitten upon the rug.",
    "The central bank raised interest rates.",
    "Borrowing money has become more expensive.",
)


def main(socket: str, *sentences: str) -> None:
    """Prints the cosine of every two sentences' vectors."""
    file = models_folder() / "minilm" / "tokenizer.json"
    vocabulary = json.loads(file.read_text("utf-8"))["model"]["vocab"]
    texts = sentences or SENTENCES
    with Client(socket) as client:
        window = client.inputs[0].shape[1]
        records = [padded(tokenize(text, vocabulary), window) for text in texts]
        vectors = np.concatenate(client.call_many(records))
    for text, row in zip(texts, vectors @ vectors.T, strict=True):
        print(" ".join(f"{cosine:5.2f}" for cosine in row), " ", text)


def tokenize(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The ids of a text's pieces: of what is left of a word always the longest there is."""
    letters = unicodedata.normalize("NFD", text.lower())
    plain = "".join(c for c in letters if unicodedata.category(c) != "Mn")
    pieces: list[str] = []
    for word in re.findall(r"[^\W_]+|[^\w\s]|_", plain):
        found: list[str] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = "##" * (start > 0) + word[start:end]
                if piece in vocabulary:
                    break
            else:
                found = ["[UNK]"]
                break
            found.append(piece)
            start = end
        pieces += found
    return [vocabulary[piece] for piece in ("[CLS]", *pieces, "[SEP]")]


def padded(ids: Sequence[int], window: int) -> tuple[np.ndarray, np.ndarray]:
    """A record of the model: ids, and where there are any; what is too long loses its end."""
    if len(ids) > window:
        ids = [*ids[: window - 1], ids[-1]]
    tokens = np.zeros(window, np.int32)
    tokens[: len(ids)] = ids
    return tokens, np.arange(window) < len(ids)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python examples/similarity.py SOCKET [SENTENCE]…")
    main(*sys.argv[1:])
