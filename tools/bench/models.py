"""The transformers that are measured: programs, begun and exported by the command line."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

#: The loader only names where records would come from; no record is ever read.
_PROGRAM = """
(def train (text "nothing.txt" :window {after} :symbols {vocabulary}))

(defmodel block ()
  (parts norm-1 (layer-norm {width})
         attention (self-attention {width} {heads} :causal true)
         norm-2 (layer-norm {width})
         mlp (mlp {width} {hidden} {width}))
  (apply (x)
    (let (x (+ x (attention (norm-1 x))))
      (+ x (mlp (norm-2 x))))))

(defmodel gpt ()
  (parts tok    (param (list {vocabulary} {width}) :init (normal 0.02))
         pos    (param (list {window} {width}) :init (normal 0.02))
         blocks (for (i (range {layers})) (block))
         norm   (layer-norm {width}))
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

(defrun :train train :steps 1 :batch 1 :optimizer (adamw :lr 1e-3))
"""


@dataclass(frozen=True, slots=True)
class Transformer:
    """The sizes of a model to be measured."""

    name: str
    width: int
    layers: int
    heads: int
    window: int
    vocabulary: int

    @property
    def call_bytes(self) -> int:
        """Of one call's inputs: a window of i32."""
        return 4 * self.window

    @property
    def answer_bytes(self) -> int:
        """Of its output: a window of f32 logits."""
        return 4 * self.window * self.vocabulary

    def program(self) -> str:
        """The model in the language."""
        return _PROGRAM.format(
            width=self.width,
            hidden=4 * self.width,
            layers=self.layers,
            heads=self.heads,
            window=self.window,
            after=self.window + 1,
            vocabulary=self.vocabulary,
        )


TRANSFORMERS = {
    model.name: model
    for model in (
        Transformer("tiny", width=16, layers=1, heads=2, window=16, vocabulary=32),
        Transformer("small", width=64, layers=2, heads=4, window=16, vocabulary=32),
        Transformer("medium", width=256, layers=4, heads=8, window=64, vocabulary=256),
        Transformer("large", width=1024, layers=10, heads=16, window=16, vocabulary=256),
    )
}


@dataclass(frozen=True, slots=True)
class Exported:
    """A model as files: its export, and a call with the answer that must come."""

    model: Transformer
    folder: Path
    record: bytes
    logits: bytes

    @property
    def onnx(self) -> Path:
        """The exported graph."""
        return self.folder / "export" / "model.onnx"

    @property
    def weight_bytes(self) -> int:
        """Size of the weights."""
        return (self.folder / "export" / "params.safetensors").stat().st_size

    def write_call(self, logits: bytes | None = None) -> tuple[Path, Path]:
        """A framed call and its answer, as files; `logits` may be another's than the file's."""
        call, answer = self.folder / "call", self.folder / "answer"
        body = self.logits if logits is None else logits
        call.write_bytes(struct.pack("<Q", len(self.record)) + self.record)
        answer.write_bytes(struct.pack("<QB", 1 + len(body), 0) + body)
        return call, answer


def prepare(model: Transformer, folder: Path) -> Exported:
    """Writes and exports the model, unless the folder holds it already."""
    place = folder / model.name
    place.mkdir(parents=True, exist_ok=True)
    program = place / "model.sx"
    if not (place / "export" / "model.onnx").exists() or program.read_text() != model.program():
        program.write_text(model.program())
        (place / "nothing.txt").write_text("")
        sexpgpu("init", program, "--checkpoint-dir", place / "run")
        sexpgpu("export", program, "--checkpoint", place / "run", "-o", place / "export")
    tokens = np.random.default_rng(1).integers(0, model.vocabulary, model.window).astype(np.int32)
    return Exported(model, place, tokens.tobytes(), _run_alone(place, tokens))


def _run_alone(place: Path, tokens: np.ndarray[tuple[int], np.dtype[np.int32]]) -> bytes:
    """The logits of one record, of the exported file."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        str(place / "export" / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (logits,) = session.run(None, {session.get_inputs()[0].name: tokens[None]})
    return bytes(logits.tobytes())


def command_line() -> list[str]:
    """`sexpgpu`, run by this Python as the installed command runs it."""
    return [sys.executable, "-c", "from sexpgpu.tools.cli import main; main()"]


def sexpgpu(*arguments: object) -> None:
    """Runs a command of ours; raises where it fails."""
    subprocess.run([*command_line(), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
