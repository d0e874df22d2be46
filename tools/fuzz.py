"""Fuzzers of what parses untrusted input: only errors of ours come out, soon, in little memory.

    python -m sexpgpu.tools.fuzz reader --minutes 20

Each target mutates a corpus of good inputs: bytes at random, and pieces swapped for others of the
kind. An input that raises anything but SexpgpuError, takes longer than a few seconds or outgrows
the memory limit is written to the directory given with --findings, and the exit status is 1.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sexpgpu.schemas.errors import SexpgpuError

#: Seconds that one input may take.
SLOW = 5.0
#: Bytes that the process may grow to while it parses inputs of some KiB.
MEMORY = 1 << 30

Mutate = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """What is fuzzed: good inputs, how they are changed, and what reads them."""

    corpus: list[bytes]
    mutate: Mutate
    read: Callable[[bytes], object]


_PROGRAM = """; a comment #| nested |#
(defknob width 8 "of x") (defvariant wide :width 16)
(def record (fields :x (list f32 4 width) :t (list i32 4)))
(defmodel net (n &key (bias true) (scale 1.5e-3))
  (parts w (param (list width n) :init (glorot)) e (embedding 9 width)
         ls (for (i (range 2)) (linear n n)) a (self-attention width 2 :causal true))
  (apply (x t)
    (let ((h ys) (scan (fn (h x) (list (+ h x) (tanh h))) (zeros (list (dim x 0) width))
                       x :axis 1)
          y (fold (fn (x l) (l x)) (matmul (a (+ x (e t))) w) ls))
      (list :a (* y scale) :b [list h ys "s\\n\\u{41}" nil -inf #;drop 2]))))
(def model (net 3))
(defn prepare (r) (list :inputs (list (get r :x) (get r :t)) :targets (get r :t)))
(defn loss (p r) (mean (sum (get p :a) :axis -1)))
(defrun :train record :steps 2 :batch 2 :optimizer (adamw :lr 1e-3))
"""
_WORDS = """
    ( ) [ ] ; #| |# #; ' " \\ :k nil true inf nan -1 0 1e309 99999999999999999999 -inf 1.5 1 2 64
    (list) batch f32 bf16 bool i64 & &key &rest def fn let if cond for x dim scan reshape permute
    concat take einsum attention conv lstm top-k split sum pad (range_1000000000000) (dim_x_0)
    (list_-1_8) (zeros_(list_1000000_1000000)) (iota_(dim_x_0)) :axis :to -9 (fn_(x)_x)
""".split()


def targets() -> dict[str, Callable[[], Target]]:
    """The targets by name."""
    return {
        "reader": _reader,
        "program": _program,
        "model": _model,
        "safetensors": _safetensors,
        "torch": _torch,
        "checkpoint": _checkpoint,
        "onnx": _onnx,
    }


def mutate_bytes(words: list[bytes]) -> Mutate:
    """Bytes flipped, cut, doubled, moved, and swapped for words that mean something."""

    def mutate(random: random.Random, data: bytes) -> bytes:
        buffer = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 4, 16))):
            place = random.randrange(len(buffer) + 1)
            end = min(len(buffer), place + random.choice((1, 2, 8, 40, 400)))
            match random.randrange(6):
                case 0 if place < len(buffer):
                    buffer[place] = random.randrange(256)
                case 1:
                    del buffer[place:end]
                case 2:
                    buffer[place:place] = buffer[place:end] * random.choice((1, 2, 30))
                case 3:
                    buffer[place:place] = random.choice(words)
                case 4:
                    buffer[place:end] = random.choice(words)
                case _:
                    other = random.randrange(len(buffer) + 1)
                    buffer[place:place] = buffer[other : other + 60]
        return bytes(buffer[: 1 << 20])

    return mutate


def mutate_json(values: list[Any]) -> Mutate:
    """A value of the document swapped for another; now and then its bytes are changed as well."""
    raw = mutate_bytes([json.dumps(value).encode() for value in values])

    def mutate(random: random.Random, data: bytes) -> bytes:
        document = json.loads(data)
        for _ in range(random.choice((1, 1, 2, 5))):
            target = document
            while True:
                if not isinstance(target, dict | list) or not target:
                    break
                keys = list(target) if isinstance(target, dict) else range(len(target))
                key = random.choice(list(keys))
                if random.random() < 0.35 or not isinstance(target[key], dict | list):
                    action = random.randrange(4)
                    if action == 0:
                        del target[key]
                    elif action == 1 and isinstance(target, dict):
                        target[random.choice(("x", "shape", "body", "value"))] = deepcopy(
                            target[key]
                        )
                    else:
                        target[key] = deepcopy(random.choice(values))
                    break
                target = target[key]
        text = json.dumps(document).encode()
        return raw(random, text) if random.random() < 0.2 else text

    return mutate


def _reader() -> Target:
    from sexpgpu.export.language.reader import read

    words = [word.replace("_", " ").encode() for word in _WORDS]
    return Target([_PROGRAM.encode()], mutate_bytes(words), lambda data: read(data, "fuzz.sx"))


def _program() -> Target:
    from sexpgpu.export.language.report import report_on

    path = Path(tempfile.mkdtemp()) / "fuzz.sx"

    def compile_text(data: bytes) -> None:
        path.write_bytes(data)
        report_on(path, None, {})

    words = [word.replace("_", " ").encode() for word in _WORDS]
    return Target([_PROGRAM.encode()], mutate_bytes(words), compile_text)


def _model() -> Target:
    from sexpgpu.export.graph.document import ModelFile, read_model, write_model
    from sexpgpu.export.language.alone import trace_alone
    from sexpgpu.export.language.program import compile_program

    path = Path(tempfile.mkdtemp()) / "fuzz.sx"
    path.write_text(_PROGRAM)
    graph = trace_alone(compile_program(path)).graph
    values: list[object] = [
        None, True, -1, 0, 1, 2**31, 2**63, 2**64, 1.5, 1e999, "batch", "16*batch", "0*batch",
        "nan", "nan:7fc00001", "f32", "bf16", "i64", "bool", "n0", "n3:1",
        "@inputs.0", "$w", "",
        "x" * 5000, [], {}, [1] * 20, [10**9, 10**9], ["batch", "batch"], [[[]]], {"dtype": "f32"},
        "matmul", "scan", "reshape", "conv", "einsum", "lstm", "...ij,jk->...ik",
        [2**62, 2**62], -(2**63),
    ]  # fmt: skip
    corpus = [write_model(ModelFile(graph), "fuzz")]
    return Target(corpus, mutate_json(values), lambda data: read_model(data, "model.json"))


def _safetensors() -> Target:
    import io

    from sexpgpu.schemas.safetensors import plan_header, read_header_from

    head, _ = plan_header(
        [("a", "F32", (2, 3)), ("b.c", "BF16", (4,)), ("d", "I64", ())], {"k": "v"}
    )
    body = head + bytes(24 + 8 + 8)
    words = [
        b'"dtype"', b'"F32"', b'"F64"', b"[0,0]", b"[0,24]", b"[-1,4]", b"99999999999999999999",
        b'"__metadata__"', b"{}", b"[" * 500, b"\xff" * 8, b"\x00" * 8, b"1e9", b'"a"', b",", b"}",
    ]  # fmt: skip

    def read(data: bytes) -> object:
        return read_header_from(io.BytesIO(data), len(data), "fuzz.safetensors")

    return Target([body], mutate_bytes(words), read)


def _torch() -> Target:
    """PyTorch's format before 1.6, whose pickles no zip file's directory guards."""
    from sexpgpu.export.storage.torch_source import TorchSource

    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0aNK\6tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0(K\2K\3t(K\3K\1t\x89NtR"
    system = b"\x80\2}X\r\0\0\0little_endian\x88s."
    magic = b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    state = b"\x80\2}q\0(X\1\0\0\0w" + tensor + b"q\1X\1\0\0\0l](h\1eX\1\0\0\0ccmy\nNet\n)R}b"
    body = magic + b"K\1." + system + state + b"u.](X\1\0\0\0ae." + b"\6" + bytes(7 + 24)
    words = [
        storage, tensor, b"(", b"t", b"u", b"e", b"h\0", b"h\1", b"R", b"b", b"]", b"}", b"\x85",
        b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"cos\nsystem\n", b"q\0", b"2",
        b"ccollections\nOrderedDict\n", b"ctorch\nSize\n", b"r\xff\xff\xff\xff", b"s", b"a",
    ]  # fmt: skip
    folder = tempfile.TemporaryDirectory(prefix="fuzz.")

    def read(data: bytes) -> object:
        path = Path(folder.name) / "w.pt"
        path.write_bytes(data)
        source = TorchSource(path)
        return [source.stored(key).sum() for key in source.keys()]  # noqa: SIM118

    return Target([body], mutate_bytes(words), read)


def _checkpoint() -> Target:
    from sexpgpu.schemas.checkpoint import (
        Checkpoint,
        LoadedParameter,
        Parameter,
        SourceText,
        read_checkpoint,
        write_checkpoint,
    )

    document = Checkpoint(
        producer="fuzz",
        step=3,
        slug="fuzz",
        knobs={"a": 1, "b": [1.5, "x"]},
        sources=[SourceText("a.sx", "(def a 1)")],
        parameters=[Parameter("w", [2, 3], "f32")],
        loads=[LoadedParameter("w", "w.npz", "w", "0" * 64, False)],
    )
    values = [
        None,
        -1,
        2**64,
        "",
        "f32",
        [],
        {},
        [[[[1]]]],
        {"type": "float", "value": "inf"},
        True,
    ]
    inner = mutate_json(values)

    def mutate(random: random.Random, data: bytes) -> bytes:
        """Mostly sealed again, so that what is behind the seal is reached."""
        import hashlib

        text = inner(random, data)
        mark = b'"seal": "'
        if mark not in text or random.random() < 0.1:
            return text
        head = text[: text.index(mark) + len(mark)]
        return head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'

    return Target(
        [write_checkpoint(document)], mutate, lambda data: read_checkpoint(data, "checkpoint.json")
    )


def _onnx() -> Target:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    from sexpgpu.export.inspection import inspect

    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "fuzz",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    path = Path(tempfile.mkdtemp()) / "fuzz.onnx"

    def read(changed: bytes) -> object:
        path.write_bytes(changed)
        return inspect(str(path))

    return Target([data], mutate_bytes([b"\xff" * 9, b"\x0a", b"\x08\x01", bytes(64)]), read)


@click.command()
@click.argument("name", metavar="TARGET", type=click.Choice(sorted(targets())))
@click.option("--minutes", type=float, default=1.0)
@click.option("--seed", type=int, default=0)
@click.option("--findings", type=click.Path(path_type=Path), default=Path("build/fuzz"))
def main(name: str, minutes: float, seed: int, findings: Path) -> None:
    """Fuzz TARGET for some minutes."""
    target = targets()[name]()
    generator = random.Random(seed)
    corpus = list(target.corpus)
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
    faulthandler.enable()
    start = last = time.monotonic()
    tried = accepted = found = 0
    while time.monotonic() - start < 60 * minutes:
        data = target.mutate(generator, generator.choice(corpus))
        tried += 1
        begin = time.monotonic()
        problem = ""
        try:
            target.read(data)
            accepted += 1
            # What is still good becomes the start of further changes.
            if len(corpus) < 500 and len(data) < 1 << 14:
                corpus.append(data)
        except SexpgpuError as error:
            error.render()
        except Exception:
            problem = traceback.format_exc()
        if time.monotonic() - begin > SLOW:
            problem += f"took {time.monotonic() - begin:.1f} s\n"
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MEMORY:
            problem += "outgrew the memory limit\n"
        if problem:
            found += 1
            findings.mkdir(parents=True, exist_ok=True)
            (findings / f"{name}-{seed}-{tried}").write_bytes(data)
            click.echo(f"{name}: input {tried}\n{problem}", err=True)
            if "memory" in problem or found >= 20:
                break
        if time.monotonic() - last > 60:
            last = time.monotonic()
            click.echo(f"{name}: {tried:,} inputs, {accepted:,} accepted, {found} found", err=True)
    click.echo(f"{name}: {tried:,} inputs, {accepted:,} accepted, {found} found")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
