"""Text by a model of characters: a client of examples/shakespeare.sx, trained and served.

    sexpgpu serve build/gpt --socket build/gpt.sock --at
    python examples/verse.py build/gpt.sock ["how it begins" [how many characters]]

The server gives a number for each character, of how likely it is the next; one of them is drawn,
and the text with it goes back to the server.  The LSTM of examples/lstm.sx is called alike.
"""

from __future__ import annotations

import sys

import numpy as np

from sexpgpu.serve import Client
from sexpgpu.tools.fetch_models import fetch_model

#: Below 1, what is likely is drawn more often than the model says.
TEMPERATURE = 0.8


def main(socket: str, start: str = "\n", count: str = "400") -> None:
    """Prints the text as it goes on from `start`."""
    vocabulary = sorted(set(fetch_model("shakespeare")["text.txt"].read_text("utf-8")))
    tokens = [vocabulary.index(character) for character in start]
    draw = np.random.default_rng(0)
    print(start, end="", flush=True)
    with Client(socket) as client:
        window = client.inputs[0].shape[1]
        for _ in range(int(count)):
            seen = tokens[-window:]
            record = np.zeros((1, window), np.int32)
            record[0, : len(seen)] = seen
            logits = client.call(record, np.array([len(seen) - 1], np.int32))
            scaled = np.asarray(logits, np.float64).reshape(-1) / TEMPERATURE
            chances = np.exp(scaled - scaled.max())[: len(vocabulary)]
            tokens.append(int(draw.choice(len(vocabulary), p=chances / chances.sum())))
            print(vocabulary[tokens[-1]], end="", flush=True)
    print()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit('usage: python examples/verse.py SOCKET ["how it begins" [how many characters]]')
    main(*sys.argv[1:])
