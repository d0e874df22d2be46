"""e2k: its encoder, its decoder and its katakana are those of the package's own code in NumPy."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.real import relative_difference
from support.recognised import Recognised

pytestmark = pytest.mark.real

WORDS = ("constants", "geogaddi", "a", "rock'n roll", "electroencephalogram", "zyx", "portability")
PHONEMES = ("K AA1 N S T AH0 N T S", "B OY1", "ZH", "IH0 L EH2 K T R OW0 EH0 N")
WINDOW = 28


def read_code(path: Path) -> Any:
    """The package's module for inference, which needs nothing but NumPy."""
    spec = importlib.util.spec_from_file_location("e2k_inference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Side:
    """The package's model of a file and the same one exported, in its three parts."""

    def __init__(self, directory: Path, file: str, words: tuple[Any, ...], **knobs: Any) -> None:
        files = fetch_model("e2k")
        code = read_code(files["inference.py"])
        base = code.C2K if file.startswith("c2k") else code.P2K
        self.speaker = base(path=str(files[file]))
        self.theirs = self.speaker.s2s
        self.words = words
        knobs |= {"weights": str(files[file]), "window": WINDOW}
        self.parts = {
            part: Recognised("e2k", directory / part, part=part, **knobs)
            for part in ("encoder", "decoder", "whole")
        }

    def ids(self, word: Any) -> Array:
        symbols = [self.speaker.in_table[c] for c in word]
        return np.array([self.theirs.sos_idx, *symbols, self.theirs.eos_idx])

    @property
    def inputs(self) -> dict[str, Array]:
        """Behind a word's <eos> stand letters that nothing may read."""
        count = len(self.theirs.in_table)
        letters = np.resize(np.arange(count, dtype=np.int32), (len(self.words), WINDOW))
        lengths = []
        for row, word in zip(letters, self.words, strict=True):
            ids = self.ids(word)
            row[: len(ids)] = ids
            lengths.append(len(ids))
        return {"inputs.0": letters, "inputs.1": np.array(lengths, np.int32)}

    def memory(self, word: Any) -> tuple[Array, Array]:
        """Keys and values of each letter, [heads, letters, size], as the package finds them."""
        code, x = self.theirs, self.theirs.e_emb.forward(self.ids(word))
        both = [code.encoder.forward(x)[0], code.encoder_reverse.forward(x)[0]]
        keys, values = code.attn.memory(np.tanh(code.encoder_fc.forward(np.concatenate(both, -1))))
        return np.transpose(keys, (0, 2, 1)), values

    def step(self, kana: int, memory: Any, before: Array, after: Array) -> dict[str, Array]:
        """A step of the decoder, as in the package's `forward`."""
        code = self.theirs
        made, before = code.pre_decoder.forward(code.k_emb.forward(np.array([kana])), before)
        keys, values = memory
        seen = code.attn.forward(made, (np.transpose(keys, (0, 2, 1)), values))
        x, after = code.post_decoder.forward(np.concatenate([made, seen], -1), after)
        return {"logits": code.fc.forward(x)[0], "before": before, "after": after}

    def written(self, row: list[int]) -> str:
        end = self.theirs.eos_idx
        assert end not in row or set(row[row.index(end) :]) == {end}
        return "".join(self.theirs.out_table[kana] for kana in row if kana != end)


@pytest.fixture(scope="module", params=["letters", "phonemes"])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Side:
    directory = tmp_path_factory.mktemp("e2k")
    if request.param == "letters":
        return Side(directory, "c2k.safetensors", WORDS)
    words = tuple(phonemes.split() for phonemes in PHONEMES)
    return Side(directory, "p2k.safetensors", words, symbols=74)


def test_the_encoder(side: Side, record_property: Any) -> None:
    found, differences = side.parts["encoder"].run(side.inputs), []
    for record, word in enumerate(side.words):
        length = len(side.ids(word))
        for name, expected in zip(("keys", "values"), side.memory(word), strict=True):
            row = found[name][record, :, :length]
            differences.append(relative_difference(row, expected))
    record_property("largest relative difference", max(differences))
    assert max(differences) < 1e-5


def test_a_step_of_the_decoder(side: Side, record_property: Any) -> None:
    """With the package's keys and values; what stands behind a word is not looked at."""
    generator = np.random.default_rng(1)
    count = len(side.words)
    states = np.tanh(generator.standard_normal((2, count, 256))).astype(np.float32)
    kana = generator.integers(0, 88, count).astype(np.int32)
    keys, values = generator.standard_normal((2, count, 4, WINDOW, 64)).astype(np.float32) * 9
    lengths = side.inputs["inputs.1"]
    expected = []
    for record, word in enumerate(side.words):
        memory = side.memory(word)
        keys[record, :, : lengths[record]], values[record, :, : lengths[record]] = memory
        expected.append(side.step(kana[record], memory, *states[:, record]))
    step = [kana, keys, values, lengths, *states]
    found = side.parts["decoder"].run({f"inputs.{i}": array for i, array in enumerate(step)})
    differences = {
        name: relative_difference(found[name], np.stack([row[name] for row in expected]))
        for name in found
    }
    record_property("largest relative differences", differences)
    assert max(differences.values()) < 1e-5


def test_a_client_writes_as_the_package_does(side: Side) -> None:
    """A step at a time from <sos> and states of zeros, up to <eos>."""
    words, decoder = side.inputs, side.parts["decoder"]
    seen = side.parts["encoder"].run(words)
    for record, word in enumerate(side.words):
        memory = [seen[name][[record]] for name in ("keys", "values")]
        kana, written = side.theirs.sos_idx, list[int]()
        states = [np.zeros((1, 256), np.float32)] * 2
        for _ in range(16):
            step = [np.array([kana], np.int32), *memory, words["inputs.1"][[record]], *states]
            made = decoder.run({f"inputs.{i}": array for i, array in enumerate(step)})
            kana, states = int(made["logits"].argmax()), [made["before"], made["after"]]
            written.append(kana)
            if kana == side.theirs.eos_idx:
                break
        assert side.written(written) == side.speaker(word)


def test_the_whole_writes_as_the_package_does(side: Side) -> None:
    found = side.parts["whole"].run(side.inputs)["output"]
    written = [side.written(row) for row in found.tolist()]
    assert written == [side.speaker(word) for word in side.words]
    assert written[0] == ("コンスタンツ" if side.words == WORDS else side.speaker(side.words[0]))


def test_bf16_products(side: Side) -> None:
    if side.words == WORDS:
        side.parts["encoder"].check_bf16(side.inputs)
        side.parts["decoder"].check_bf16(side.parts["decoder"].inputs(3))
