"""The pages on ONNX Runtime's JavaScript packages run as they stand, where those are set up."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from sexpgpu.tools.portability.cases import Form, find_programs, prepare
from sexpgpu.tools.portability.environments import Unavailable, find, install
from sexpgpu.tools.portability.runtime import read_runtimes
from sexpgpu.tools.portability.trial import attempt
from support.exports import export
from support.web import web_server

ROOT = Path(__file__).resolve().parents[3]
RUNTIMES = {name: each for name, each in read_runtimes().items() if each.is_node}
CHROMIUM = "onnxruntime-web-chromium"
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")

#: Opens the page and prints what stands in it, or what went wrong there.
OPEN = """
import { createRequire } from 'node:module';

const [environment, executablePath, url] = process.argv.slice(2);
const { chromium } = createRequire(`${environment}/`)('playwright-core');
const browser = await chromium.launch({ executablePath, args: ['--disable-gpu'] });
const page = await browser.newPage();
const failure = new Promise((_, reject) => page.on('pageerror', reject));
await page.goto(url);
const done = page.waitForFunction(() => document.getElementById('result').textContent !== '…');
await Promise.race([done, failure]);
console.log(await page.textContent('#result'));
await browser.close();
"""


def environment(name: str) -> Path:
    """Where a runtime is set up; skips the test where it is not."""
    runtime = RUNTIMES[name]
    place = find(runtime)
    missing = [each for each in ("node", *runtime.programs[:1]) if shutil.which(each) is None]
    if place is None or missing:
        pytest.skip(f"{name} is not set up")
    return place


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks of the language."""
    text = (ROOT / "docs" / "runtimes" / f"{page}.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


BLOCKS = [
    (page, number)
    for page in ("onnxruntime-node", "onnxruntime-web")
    for number in range(len(blocks(page, "js")))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exports that the pages speak of."""
    folder = tmp_path_factory.mktemp("pages")
    program = (ROOT / "examples" / "tiny.sx").read_text("utf-8")
    shutil.copy(ROOT / "examples" / "verses.txt", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        export(program, folder, "export", verify=False)
        export(program, folder, "embedded", embed=True, verify=False)
    # One file is all that an embedded model needs.
    (folder / "embedded" / "params.safetensors").unlink()
    return folder


def use(folder: Path, place: Path) -> None:
    """Puts the environment's packages into the folder."""
    link = folder / "node_modules"
    link.unlink(missing_ok=True)
    link.symlink_to(place / "node_modules")


def node(*words: object, cwd: Path) -> str:
    done = subprocess.run(
        ["node", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(cwd)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_a_block_runs_in_node(folder: Path, page: str, number: int) -> None:
    text = blocks(page, "js")[number]
    use(folder, environment(page))
    (folder / "block.mjs").write_text(text)
    shown = node("block.mjs", cwd=folder)
    assert "output" in shown or "float32" in shown
    if "inputs })" in text:
        session = onnxruntime.InferenceSession(folder / "export" / "model.onnx")
        inputs = np.arange(48, dtype=np.int32).reshape(3, 16) % 32
        (logits,) = session.run(None, {"inputs": inputs})
        found = [float(each) for each in NUMBER.findall(shown)]
        np.testing.assert_allclose(found, logits.reshape(-1)[:4], rtol=1e-5)
        assert "[ 3, 16, 32 ]" in shown


@pytest.mark.parametrize("embedded", [False, True])
def test_the_page_runs_in_a_browser(folder: Path, embedded: bool) -> None:
    (page,) = blocks("onnxruntime-web", "html")
    if embedded:
        page, count = re.subn(r"export/model.onnx', \{.*?\}\);", "embedded/model.onnx');",
                              page, flags=re.DOTALL)  # fmt: skip
        assert count == 1
    place = environment(CHROMIUM)
    use(folder, place)
    (folder / "index.html").write_text(page, "utf-8")
    (folder / "open.mjs").write_text(OPEN, "utf-8")
    chromium = next(filter(None, map(shutil.which, RUNTIMES[CHROMIUM].programs)))
    with web_server(folder) as (url, requests):
        shown = node("open.mjs", place, chromium, f"{url}/index.html", cwd=folder)
    assert shown == "float32 3,16,32\n"
    assert any("params.safetensors" in each for each in requests) is not embedded


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_tool_runs_an_example(name: str, tmp_path: Path) -> None:
    place = environment(name)
    case = prepare(find_programs()["tiny"], Form("portable"), tmp_path)
    outcome = attempt(RUNTIMES[name], place, case, tmp_path / "results", again=False)
    assert (outcome.verdict, outcome.error) == ("agrees", "")
    stored = json.loads(next((tmp_path / "results" / name).iterdir()).read_text())
    assert stored["version"] == RUNTIMES[name].packages[0].rpartition("@")[2]


def test_a_browser_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="there is no chromium; `apt-get install"):
        install(RUNTIMES[CHROMIUM], tmp_path)
