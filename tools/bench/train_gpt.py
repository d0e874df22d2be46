"""The GPT over characters that is trained: its program, its text, and what all contenders share.

It is nanoGPT's for characters (https://github.com/karpathy/nanoGPT, `train_shakespeare_char`):
tied embeddings, no biases, no dropout, AdamW with weight decay, clipped gradients, and a rate that
warms up and falls as a cosine.
"""

from __future__ import annotations

import dataclasses
import json
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sexpgpu.export.initial import first_value
from sexpgpu.tools.train.data.datasets import open_dataset
from sexpgpu.tools.train.data.feed import Feed
from sexpgpu.tools.train.plan import make_plan

#: Steps whose batches are written down; contenders that do not read the text take them in turn.
_BATCHES = 64
_CHARACTERS = 400_000

_PROGRAM = """
(def train (text "{text}" :window {after} :tokenizer :characters :symbols {vocabulary}))

(defmodel block ()
  (parts norm-1    (layer-norm {width} :bias false)
         attention (self-attention {width} {heads} :causal true :bias false)
         norm-2    (layer-norm {width} :bias false)
         mlp       (mlp {width} {hidden} {width} :bias false))
  (apply (x)
    (let (x (+ x (attention (norm-1 x))))
      (+ x (mlp (norm-2 x))))))

(defmodel gpt ()
  (parts tok    (param (list {vocabulary} {width}) :init (normal 0.02))
         pos    (param (list {window} {width}) :init (normal 0.02))
         blocks (for (i (range {layers})) (block))
         norm   (layer-norm {width} :bias false))
  (apply (tokens)
    (let (x (fold (fn (x b) (b x)) (+ (take tok tokens) pos) blocks))
      (matmul (norm x) (transpose tok)))))

(defn prepare (record)
  (let (t (get record :tokens))
    (list :inputs  (slice t :axis 1 :to {window})
          :targets (slice t :axis 1 :from 1))))

(def model (gpt))

(defn loss (prediction prepared)
  (list :loss (mean (cross-entropy prediction (get prepared :targets)))))

(defrun :train train :steps {run_steps} :batch {batch} :checkpoint-every {run_steps}
        :optimizer (adamw :lr {rate} :beta1 {beta1} :beta2 {beta2} :epsilon {epsilon}
                          :weight-decay {decay})
        :schedule (cosine :warm-up {warm_up} :steps {fall} :final {final})
        :clip {clip})
"""


@dataclass(frozen=True, slots=True)
class Gpt:
    """The sizes of a model, and how it is trained."""

    name: str
    width: int
    layers: int
    heads: int
    window: int
    batch: int
    vocabulary: int = 65
    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8
    decay: float = 0.1
    clip: float = 1.0
    warm_up: int = 10
    fall: int = 5000
    final: float = 0.1

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.window

    def program(self, text: Path) -> str:
        """The model and its run in the language; the run has no end of its own."""
        return _PROGRAM.format(
            **dataclasses.asdict(self),
            text=text,
            after=self.window + 1,
            hidden=4 * self.width,
            run_steps=10**9,
        )


GPTS = {
    gpt.name: gpt
    for gpt in (
        Gpt("tiny", width=32, layers=2, heads=2, window=16, batch=4),
        Gpt("small", width=128, layers=4, heads=4, window=64, batch=12),
        Gpt("large", width=384, layers=6, heads=6, window=256, batch=8),
    )
}


def prepare(gpt: Gpt, folder: Path) -> Path:
    """Writes what the contenders begin with; gives the program.

    Beside the program are `text.txt`; `sizes.json`; `weights.npz`, the first value of every
    parameter; and `batches.npy`, the run's first batches [steps, batch, window + 1] i32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "gpt.sx"
    text = (folder / "text.txt").resolve()
    program.write_text(gpt.program(text))
    text.write_text(_text(gpt.vocabulary))
    (folder / "sizes.json").write_text(json.dumps(dataclasses.asdict(gpt)))
    plan = make_plan(program, None, None, None)
    weights = {path: first_value(p, plan.run.seed) for path, p in plan.trained.items()}
    np.savez(folder / "weights.npz", **weights)  # type: ignore[arg-type]
    with Feed(open_dataset(plan.run.train), gpt.batch, plan.run.seed) as feed:
        batches = [next(feed)["tokens"] for _ in range(_BATCHES)]
    np.save(folder / "batches.npy", np.stack(batches))
    return program


def _text(vocabulary: int) -> str:
    """Characters as unequal as those of a language, so that there is something to learn."""
    letters = (string.ascii_letters + string.digits + " .,\n")[:vocabulary]
    shares = 1 / np.arange(1, len(letters) + 1)
    generator = np.random.default_rng(0)
    drawn = generator.choice(len(letters), _CHARACTERS, p=shares / shares.sum())
    return "".join(letters[index] for index in drawn)
