"""Sets a checkout up in a folder of its own, `build/`, and works there.

    python3 tools/develop.py demo     export a real model, serve it, and call it
    python3 tools/develop.py test     run the tests; what follows goes to pytest
    python3 tools/develop.py lint     ruff and mypy

It needs Python 3.11 and a package index, and nothing else: it runs before anything is installed,
so it imports the standard library only.  Setting up is done once, and again when pyproject.toml or
the list of source files changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
ENVIRONMENT = BUILD / "venv"
PROGRAMS = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
PACKAGES = ("export", "schemas", "serve", "tools")

#: A server stops within five seconds, whatever its clients do.
_STOP_SECONDS = 10


def main(arguments: Sequence[str]) -> int:
    """The exit status of the command that was asked for."""
    if sys.version_info < (3, 11):  # noqa: UP036, this runs under whatever Python there is
        return _refuse(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    commands = {"demo": demo, "test": test, "lint": lint}
    if not arguments or arguments[0] not in commands:
        return _refuse(__doc__ or "")
    try:
        return commands[arguments[0]](arguments[1:])
    except subprocess.CalledProcessError as error:
        return _refuse(f"`{' '.join(map(str, error.cmd))}` ended with status {error.returncode}")
    except KeyboardInterrupt:
        return 130


def demo(arguments: Sequence[str]) -> int:
    """Exports MiniLM, a sentence encoder with its real weights, serves it, and calls it."""
    # The README's tour goes on in the same environment, and trains.
    set_up("train")
    models = os.environ.get("SEXPGPU_MODELS")
    knobs = ["--knob", f"weights={models}/minilm/model.safetensors"] if models else []
    folder, socket = "build/demo/minilm", "build/demo/minilm.sock"
    shutil.rmtree(BUILD / "demo", ignore_errors=True)
    _show("python", "-m", "sexpgpu.tools.fetch_models", "minilm")
    _show("sexpgpu", "export", "examples/minilm.sx", *knobs, "-o", folder)
    _show("sexpgpu", "inspect", folder)
    done = "exported"
    if sys.platform == "linux":
        with _serving(folder, "--socket", socket, "--output", "embedding"):
            _show("python", "examples/similarity.py", socket)
        done = "exported, served and called"
    print(f"\n{done}: the model is {folder}/model.onnx", flush=True)
    return 0


def test(arguments: Sequence[str]) -> int:
    """pytest, on every core unless its arguments say otherwise."""
    set_up(*_test_extras())
    return _run("pytest", *(arguments or ("-n", "auto")))


def lint(arguments: Sequence[str]) -> int:
    """Rules, layout and types; the first that fails ends it."""
    set_up(*_test_extras())
    packages = [word for name in PACKAGES for word in ("-p", f"sexpgpu.{name}")]
    return (
        _run("ruff", "check", ".")
        or _run("ruff", "format", "--check", ".")
        or _run("mypy", *packages)
    )


def _test_extras() -> tuple[str, ...]:
    """With SEXPGPU_PARITY, also PyTorch and transformers, which the real models are held against.

    They take some gigabytes from a package index; without them those tests are skipped.
    """
    return ("test", "parity") if os.environ.get("SEXPGPU_PARITY") else ("test",)


def set_up(*extras: str) -> None:
    """A virtual environment that holds the project, editable, with these extras."""
    stamp = ENVIRONMENT / "set-up.json"
    try:
        found = json.loads(stamp.read_text())
    except (OSError, ValueError):
        found = {"python": "", "project": "", "extras": []}
    wanted = {"python": sys.version, "project": _fingerprint(), "extras": sorted(extras)}
    if wanted == found | {"extras": sorted({*extras} & {*found["extras"]})}:
        return
    python = PROGRAMS / "python"
    if found["python"] != sys.version:
        print(f"setting up {ENVIRONMENT}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    else:
        wanted["extras"] = sorted({*extras, *found["extras"]})
    project = f"{ROOT}[{','.join(wanted['extras'])}]" if wanted["extras"] else str(ROOT)
    # Strict: a tree of links, which mypy follows too; and so only what a wheel would hold.
    strict = ("--config-settings", "editable_mode=strict")
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([python, "-m", "pip", "install", *quiet, "-e", project, *strict], check=True)
    stamp.write_text(json.dumps(wanted))


def _fingerprint() -> str:
    """Changes with pyproject.toml and with the names of the source files."""
    names = sorted(
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    text = "\n".join(names).encode() + (ROOT / "pyproject.toml").read_bytes()
    return hashlib.sha256(text).hexdigest()


def _run(program: str, *arguments: str | Path) -> int:
    return subprocess.run([PROGRAMS / program, *arguments], cwd=ROOT).returncode


def _show(program: str, *arguments: str) -> None:
    """Runs a command of the environment, written out above what it prints."""
    print("\n$ " + " ".join([program, *arguments]), flush=True)
    subprocess.run([PROGRAMS / program, *arguments], cwd=ROOT, check=True)


@contextmanager
def _serving(*arguments: str) -> Iterator[None]:
    """A server that runs meanwhile, and has said what it serves."""
    command = [str(PROGRAMS / "sexpgpu"), "serve", *arguments]
    print("\n$ " + " ".join(["sexpgpu", "serve", *arguments, "&"]), flush=True)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                print(line, end="", flush=True)
                if line.startswith("  device"):
                    break
            else:
                raise subprocess.CalledProcessError(server.wait(), command)
            yield
        finally:
            server.terminate()
            try:
                server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
