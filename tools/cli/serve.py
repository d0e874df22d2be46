"""`sexpgpu serve`: a model behind a Unix socket."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.cli.streams import say

if TYPE_CHECKING:
    from sexpgpu.serve.host import Loaded


@click.command(name="serve")
@click.argument("operand")
@click.option("--socket", "path", metavar="PATH", required=True, help="Where clients connect.")
@click.option("--device", default="auto", metavar="auto|cpu|cuda[:N]")
@click.option("--batch", type=click.IntRange(1, 4096), default=8, help="Calls that run together.")
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Only this output.")
@click.option("--at", is_flag=True, help="One position a record: adds the input `at`.")
@click.option("--precision", type=click.Choice(["f32", "bf16"]), help="Of the products.")
@click.option("--trained", is_flag=True, help="The trained weights, not their averages.")
@click.option("--threads", type=click.IntRange(1, 256), default=1, help="Of one run.")
@click.option("--mode", default="0600", metavar="OCTAL", help="The socket's permissions.")
@click.option("--dim", "dimensions", multiple=True, metavar="NAME=N", help="Of an ONNX file.")
@click.option("--log-json", is_flag=True, help="A line of JSON on stderr for every event.")
def command(
    operand: str,
    path: str,
    device: str,
    batch: int,
    outputs: tuple[str, ...],
    at: bool,
    precision: str | None,
    trained: bool,
    threads: int,
    mode: str,
    dimensions: tuple[str, ...],
    log_json: bool,
) -> None:
    """Serve a checkpoint or its location, a directory that export wrote, or an ONNX file."""
    from sexpgpu.serve.signals import StopSignals

    _check_system()
    permissions = _mode(mode)
    fixed = dict(_dimension(text) for text in dimensions)
    stop = StopSignals()
    # While modules are loaded there is no garbage to look for.
    gc.disable()
    # NumPy multiplies no matrices here: its threads for that would only cost time and memory.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from pathlib import Path

    from sexpgpu.serve.endpoint import Endpoint
    from sexpgpu.serve.host import greeting, load_operand
    from sexpgpu.serve.hosted import Shaping
    from sexpgpu.serve.server import Server

    place = Endpoint(Path(path), permissions)
    stop.leave = place.remove
    shaping = Shaping(outputs, at, precision, trained, fixed)  # type: ignore[arg-type]
    loaded = load_operand(operand, shaping, device=device, batch=batch, threads=threads)
    _allow_many_files()
    listener = place.listen()
    try:
        server = Server(loaded.engine, loaded.plan, greeting(loaded), listener, stop.wake)
        if log_json:
            server.log = _log
            _log("serving", {"model": loaded.hosted.place, "socket": path})
        stop.on_stop = server.stop
        stop.ready()
        say("\n".join(_lines(loaded, path)))
        # What has been loaded stays: no search for garbage needs to look at it again.
        gc.freeze()
        gc.enable()
        server.serve()
    finally:
        place.remove()
    number = stop.number or signal.SIGTERM
    calls, runs = server.calls, server.runs
    if log_json:
        _log("stopped", {"signal": signal.Signals(number).name, "calls": calls, "runs": runs})
    say(
        f"sexpgpu serve: stopped by {signal.Signals(number).name}, "
        f"{calls} call{'s' if calls != 1 else ''} in {runs} run{'s' if runs != 1 else ''}",
        err=True,
    )
    os._exit(128 + number)


def _lines(loaded: Loaded, path: str) -> list[str]:
    hosted = loaded.hosted
    lines = [f"serving {hosted.place} on {path}, up to {loaded.plan.limit} a call"]
    for label, specs in (("inputs", hosted.inputs), ("outputs", hosted.outputs)):
        lines += [f"  {label if i == 0 else '':<7} {spec}" for i, spec in enumerate(specs)]
    if hosted.obstacle:
        lines.append(f"  batch   one call at a time: {hosted.obstacle}")
    else:
        lines.append(f"  batch   {loaded.plan.describe()}")
    note = f" ({loaded.device.note})" if loaded.device.note else ""
    lines.append(f"  device  {loaded.device}{note}")
    return lines


def _log(event: str, facts: dict[str, object]) -> None:
    say(json.dumps({"time": time.time(), "event": event, **facts}), err=True)


def _check_system() -> None:
    if not hasattr(select, "epoll"):
        raise SexpgpuError(
            "E-SERVE-003",
            "serve waits on its clients with epoll, which only Linux has",
            came=sys.platform,
            help="sexpgpu.serve.load gives the model inside a process of your own",
        )


def _allow_many_files() -> None:
    """As many clients as the system lets this process have."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _mode(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise SexpgpuError(
            "E-USAGE-001", f"`{text}` is no file mode", expected="such as 0600", exit_code=2
        )
    return mode


def _dimension(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value.isdecimal() or int(value) < 1:
        raise SexpgpuError(
            "E-USAGE-001", f"`{text}` fixes no dimension", expected="--dim NAME=N", exit_code=2
        )
    return name, int(value)
