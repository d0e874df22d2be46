"""Servers for tests: in a thread, over a small ONNX graph, or the command in a process."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.serve.endpoint import Endpoint
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.host import Loaded, greeting
from sexpgpu.serve.hosted import Hosted, Limits
from sexpgpu.serve.probe import Plan
from sexpgpu.serve.protocol import TensorSpec
from sexpgpu.serve.server import Server
from sexpgpu.serve.session import Device, open_session
from support.commands import launched

#: Seconds after which something is taken never to come, however busy the machine is.
PATIENCE = 120.0

_DTYPES = {"float": "f32", "double": "f64", "bfloat16": "bf16", "int32": "i32", "int64": "i64"}

#: One input and one output of each dtype, and their values unchanged.
EVERY_DTYPE = "".join(
    f"y_{name} = Identity (x_{name})\n" for name in ("f32", "f64", "bf16", "i32", "i64", "bool")
)


def onnx_hosted(
    inputs: str, outputs: str, body: str, limits: Mapping[str, Limits] | None = None
) -> Hosted:
    """A graph in ONNX's text form: `float[N,4] x`, `float[N,4] y`, `y = Neg (x)`.

    The batch is `N`.
    """
    text = f'<ir_version: 9, opset_import: ["" : 20]> g ({inputs}) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return Hosted(
        place="a test",
        model=model.SerializeToString(),
        weights={},
        inputs=tuple(_spec(value) for value in model.graph.input),
        outputs=tuple(_spec(value) for value in model.graph.output),
        limits=dict(limits or {}),
    )


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    shape = tuple(
        1 if dimension.dim_param else dimension.dim_value
        for dimension in value.type.tensor_type.shape.dim
    )
    return TensorSpec(value.name, shape, DType(_DTYPES.get(kind, kind)))


def declare(tensors: Mapping[str, tuple[str, Sequence[int]]]) -> str:
    """Inputs or outputs in ONNX's text form, from dtype and shape of a record."""
    onnx_names = {ours: theirs for theirs, ours in _DTYPES.items()} | {"bool": "bool"}
    return ", ".join(
        f"{onnx_names[dtype]}[{', '.join(['N', *map(str, shape)])}] {name}"
        for name, (dtype, shape) in tensors.items()
    )


def identity(dtype: str, shape: Sequence[int]) -> Hosted:
    """One input `x` that comes back as `y`."""
    return onnx_hosted(
        declare({"x": (dtype, shape)}), declare({"y": (dtype, shape)}), "y = Identity (x)"
    )


@dataclass
class Live:
    """A server that runs."""

    path: str
    server: Server
    hosted: Hosted

    def connect(self, seconds: float | None = PATIENCE) -> Wire:
        return Wire(self.path, seconds)


class Wire:
    """A connection that speaks bytes; it has read the greeting."""

    def __init__(self, path: str, seconds: float | None = PATIENCE) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(seconds)
        self.socket.connect(path)
        self.about: dict[str, Any] = json.loads(self.frame())

    def frame(self) -> bytes:
        """The next message."""
        (length,) = struct.unpack("<Q", self.take(8))
        return self.take(length)

    def take(self, size: int) -> bytes:
        """So many bytes; raises EOFError at the end."""
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def send(self, payload: bytes) -> None:
        """A frame."""
        self.socket.sendall(struct.pack("<Q", len(payload)) + payload)

    def call(self, payload: bytes) -> bytes:
        """The answer to a call, status included."""
        self.send(payload)
        return self.frame()

    def at_end(self) -> bool:
        """Whether the server sends nothing more and has closed."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan_of(sizes: Sequence[int], limit: int, together: Sequence[int] = ()) -> Plan:
    """The plan that runs these sizes, as if the probe had chosen them."""
    chosen = [0, *(next(s for s in sorted(sizes) if s >= n) for n in range(1, limit + 1))]
    return Plan(limit, tuple(chosen), together=tuple(together))


@contextmanager
def serving(
    hosted: Hosted,
    limit: int = 4,
    sizes: Sequence[int] | None = None,
    together: Sequence[int] = (),
) -> Iterator[Live]:
    """A server in a thread, on a socket of its own, which is stopped in the end."""
    device = Device("cpu")
    engine = Engine(open_session(hosted, device, 1), hosted, limit)
    plan = plan_of(sizes or range(1, limit + 1), limit, together)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        place = Endpoint(path, 0o600)
        wake, wake_write = os.pipe()
        text = greeting(Loaded(hosted, engine, plan, device))
        server = Server(engine, plan, text, place.listen(), wake)
        failures: list[BaseException] = []

        def run() -> None:
            try:
                server.serve()
            except BaseException as error:
                failures.append(error)
                raise

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield Live(str(path), server, hosted)
        finally:
            server.stop()
            os.write(wake_write, b"\0")
            thread.join(PATIENCE)
            place.remove()
            os.close(wake)
            os.close(wake_write)
        assert not thread.is_alive(), "the server does not stop"
        assert not failures, failures


@dataclass
class Process:
    """`sexpgpu serve` in a process of its own."""

    path: str
    process: subprocess.Popen[str]
    lines: list[str]

    def connect(self, seconds: float | None = PATIENCE) -> Wire:
        return Wire(self.path, seconds)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Sends the signal; the exit status, and what was written on stderr."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self, seconds: float = PATIENCE) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, errors


def start(*arguments: str, keep: Sequence[int] = (), before: str = "") -> subprocess.Popen[str]:
    """The command, with signals as a shell would leave them; those in `keep` as they are here.

    `before` is Python that its process runs first.
    """
    numbers = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM} - set(keep)
    reset = f"import signal\nfor n in {[*map(int, numbers)]}: signal.signal(n, signal.SIG_DFL)\n"
    return subprocess.Popen(
        launched([sys.executable, "-m", "sexpgpu.tools.cli", *arguments], reset + before),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serve_process(
    operand: str | Path, path: str | Path, *flags: str, keep: Sequence[int] = ()
) -> Iterator[Process]:
    """Starts a server and waits for its `serving` line; kills it where it still runs in the end."""
    process = start("serve", str(operand), "--socket", str(path), *flags, keep=keep)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("  device"):
            line = process.stdout.readline()
            if not line:
                raise AssertionError(process.communicate()[1])
            lines.append(line.rstrip("\n"))
        yield Process(str(path), process, lines)
    finally:
        process.kill()
        process.communicate()


def wait_until(holds: Callable[[], bool]) -> None:
    """Looks until it holds; fails where it never does."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never comes to hold"
        time.sleep(0.005)


def pack(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> bytes:
    """A call's payload."""
    return b"".join(
        np.asarray(array).astype(spec.dtype.numpy).tobytes()
        for spec, array in zip(specs, arrays, strict=True)
    )


def write_onnx(path: Path, inputs: str, outputs: str, body: str) -> Path:
    """A file of the graph that `onnx_hosted` takes."""
    hosted = onnx_hosted(inputs, outputs, body)
    assert isinstance(hosted.model, bytes)
    path.write_bytes(hosted.model)
    return path


def write_slow(path: Path, least: int = 0) -> Path:
    """A model that takes as many milliseconds, about, as its input says, and gives it back.

    It takes `least` more, when it is loaded as well.
    """
    return write_onnx(
        path,
        "int64[N] milliseconds",
        "int64[N] y",
        f"""
        axis = Constant <value_ints = [0]> ()
        largest = ReduceMax <keepdims = 0> (milliseconds, axis)
        least = Constant <value_int = {least}> ()
        most = Add (largest, least)
        yes = Constant <value = bool {{1}}> ()
        shape = Constant <value_ints = [256, 256]> ()
        zeros = ConstantOfShape <value = float[1] {{0.0}}> (shape)
        last = Loop <body = step (int64 i, bool c, float[256, 256] h)
                         => (bool d, float[256, 256] g) {{
            d = Identity (c)
            g = MatMul (h, h)
        }}> (most, yes, zeros)
        sum = ReduceSum <keepdims = 0> (last)
        none = Cast <to = 7> (sum)
        y = Add (milliseconds, none)
        """,
    )
