"""The clients of docs/protocol.md, as they are printed, against a server."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.initial import write_initial
from sexpgpu.serve import Client, load
from support.serving import Process, serve_process

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "protocol.md").read_text("utf-8")
SOCKET = "/tmp/my-model.sock"


def block(language: str, beginning: str) -> str:
    """The block of code that begins so."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [text] = [text for text in found if text.startswith(beginning)]
    return str(text)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("run")
    write_initial(ROOT / "examples" / "tiny.sx", str(where), step=20)
    return str(where)


@pytest.fixture(scope="module")
def server(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(checkpoint, tmp_path_factory.mktemp("socket") / "s", "--at") as process:
        yield process


@pytest.fixture(scope="module")
def expected(checkpoint: str) -> list[int]:
    """What greedy sampling gives, from the whole window's logits, in this process."""
    model = load(checkpoint)
    tokens = [5, 8]
    while len(tokens) < 16:
        window = np.zeros((1, 16), np.int32)
        window[0, : len(tokens)] = tokens
        tokens.append(int(model(window)[0, len(tokens) - 1].argmax()))
    assert len(set(tokens)) > 2
    return tokens


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_python(server: Process, expected: list[int]) -> None:
    text = block("python", "import json, socket").replace(SOCKET, server.path)
    assert run(sys.executable, "-c", text) == f"{expected}\n"


def test_c(server: Process, expected: list[int], tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "sample.c"
    source.write_text(block("c", "#include"))
    run(compiler, "-Wall", "-Wextra", "-Werror", "-O2", "-o", tmp_path / "sample", source)
    assert run(tmp_path / "sample", server.path).split() == [str(token) for token in expected]


def test_javascript(server: Process, expected: list[int], tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    (tmp_path / "sample.mjs").write_text(block("js", "import net"))
    shown = run(node, tmp_path / "sample.mjs", server.path)
    assert shown.split() == [str(token) for token in expected]


def test_a_client_shows_the_servers_error(server: Process, tmp_path: Path) -> None:
    """The one in JavaScript, sending an index that there is not."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    text = block("js", "import net").replace("[5, 8]", "[5, 99]")
    (tmp_path / "sample.mjs").write_text(text)
    done = subprocess.run(
        [node, tmp_path / "sample.mjs", server.path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "`inputs`: 99 is outside 0 to 31" in done.stderr


def test_the_python_client(server: Process) -> None:
    text = block("python", "from sexpgpu.serve import Client").replace(SOCKET, server.path)
    shown = io.StringIO()
    names: dict[str, np.ndarray] = {}
    with contextlib.redirect_stdout(shown):
        exec(text, names)
    assert shown.getvalue() == "inputs [1, 16] i32 output [1, 1, 32] f32\n"
    assert names["logits"].shape == (1, 1, 32)


def test_the_greeting_has_the_fields_that_are_shown(server: Process) -> None:
    shown = json.loads(block("json", "{"))
    with Client(server.path) as client:
        about = client.about
    assert set(shown) <= set(about)
    for name in ("step", "precision", "inputs", "outputs", "device"):
        assert about[name] == shown[name], name
    assert set(about["batch"]) == set(shown["batch"])


def test_the_bytes_that_are_shown(server: Process) -> None:
    [shown] = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with Client(server.path) as client:
        call = sum(spec.nbytes for spec in client.inputs)
        answer = 1 + sum(spec.nbytes for spec in client.outputs)
    assert shown.startswith(call.to_bytes(8, "little").hex(" "))
    assert f"\n\n{answer.to_bytes(8, 'little').hex(' ')}   00" in shown


def test_the_serving_line_is_as_shown(server: Process) -> None:
    [shown] = re.findall(r"^```console\n\$ sexpgpu serve .*?\n(.*?)^```$", PAGE, re.M | re.S)
    lines = shown.rstrip().split("\n")
    assert server.lines[1:-1] == lines[1:-1]
    assert server.lines[0].split(" ")[4:] == lines[0].split(" ")[4:]
    assert server.lines[-1].startswith(lines[-1])
