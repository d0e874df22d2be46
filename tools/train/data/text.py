"""Windows of a text's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sexpgpu.export.graph.types import Array, TensorType
from sexpgpu.export.language.loaders import Loader
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.dataset import Dataset, part_of
from sexpgpu.tools.train.data.files import DataFile
from sexpgpu.tools.train.data.tokenizer import tokenizer_tokens
from sexpgpu.tools.train.data.tokens import Tokens, byte_tokens, character_tokens


class TextDataset(Dataset):
    """A record is `window` tokens from any place of the text: record n begins at token n of the
    part that `:split` takes.

    An evaluation reads windows that follow one another.  A window of n + 1 tokens is n predictions,
    of which the last token is no input, so the next window begins with it: every token but the
    part's first is predicted once.  What is left at the end, less than a window, is not read.
    """

    def __init__(
        self, tokens: Tokens, part: range, window: int, fields: Mapping[str, TensorType]
    ) -> None:
        self.fields = fields
        self.tokens = self._window = window
        self.count = len(part) - window + 1
        self.characters = tokens.characters
        self._tokens = tokens
        self._start = part.start
        if self.count < 1:
            raise SexpgpuError(
                "E-DATA-007",
                "the text is shorter than one window",
                place=str(tokens.file),
                came=f"{len(part):,} tokens"
                + ("" if len(part) == len(tokens) else f", the :split of {len(tokens):,}"),
                expected=f"at least {window:,}, as :window says",
                help="take a smaller :window, a wider :split or more text",
            )

    def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
        starts = self._start + np.asarray(indices, np.int64)
        return {"tokens": self._tokens.windows(starts, self._window)}

    def evaluation(self) -> range:
        return range(0, self.count, max(1, self._window - 1))

    def fingerprint(self) -> str:
        return f"text:{self._tokens.origin}:{self._tokens.file.fingerprint()}"


def open_text(loader: Loader) -> TextDataset:
    """The data of a `text` loader.

    Raises E-DATA-002, E-DATA-003, E-DATA-007, E-DATA-008 and E-DATA-010.
    """
    file = DataFile(str(loader.file))
    symbols, tokenizer = loader.options["symbols"], loader.options["tokenizer"]
    if tokenizer == "bytes":
        tokens = byte_tokens(file, symbols)
    elif tokenizer == "characters":
        tokens = character_tokens(file, symbols)
    else:
        tokens = tokenizer_tokens(file, tokenizer, symbols)
    part = part_of(len(tokens), loader.options.get("split"), str(file), "tokens")
    return TextDataset(tokens, part, loader.options["window"], loader.fields)
