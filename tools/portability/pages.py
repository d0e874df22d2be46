"""The pages of the runtimes: the lines that they show are run, on an export as they say.

The blocks of `sh` and `python` of a page are run in their order where there is a folder `export`,
of the example `tiny`.  The last one leaves its arrays as `inputs` and `output`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from sexpgpu.export.graph.document import read_model
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.schemas.exported import MODEL, ONNX, WEIGHTS
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.tools.portability.cases import Case
from sexpgpu.tools.portability.trial import compare

_SECONDS = 600

#: What is run after a page's last block: it writes the bytes of both tensors.
_AFTER = """
import numpy
for name, array in (("inputs", inputs), ("output", output)):
    numpy.asarray(array).tofile(name)
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks that are run: their language and their lines."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [(language, code) for language, code in found]


def check_page(page: Path, place: Path, case: Case) -> str:
    """What is wrong with a page, run in an environment with the export of a case; empty if nothing.

    `place` is the folder of the environment, whose programs and packages are found first.
    """
    shown = blocks(page)
    if not shown or shown[-1][0] != "python":
        return "shows no lines that run an export"
    with tempfile.TemporaryDirectory(prefix="portability-page-") as temporary:
        folder = Path(temporary)
        (folder / "export").mkdir()
        for name in (MODEL, WEIGHTS, ONNX):
            shutil.copyfile(case.folder / name, folder / "export" / name)
        shown[-1] = ("python", shown[-1][1] + _AFTER)
        for language, code in shown:
            wrong = _run(language, code, folder, place)
            if wrong:
                return f"its {language} block fails: {wrong}"
        return _compare(folder)


def _run(language: str, code: str, folder: Path, place: Path) -> str:
    words = {"sh": ["sh", "-e"], "python": ["python"]}[language]
    script = folder / f"block.{language}"
    script.write_text(code)
    path = os.pathsep.join([str(place / "bin"), os.environ["PATH"]])
    try:
        done = subprocess.run(
            [*words, script.name],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"it takes longer than {_SECONDS} seconds"
    return "" if done.returncode == 0 else done.stdout.strip()[-2000:] or str(done.returncode)


def _compare(folder: Path) -> str:
    """Whether the output is that of the inputs, which have the model's shape but for the batch."""
    model = read_model((folder / "export" / MODEL).read_bytes(), MODEL)
    (given,), ((name, made),) = model.graph.inputs, model.graph.outputs.items()
    record = [d for d in given.type.shape if isinstance(d, int)]
    inputs = np.fromfile(folder / "inputs", given.type.dtype.numpy).reshape(-1, *record)
    with MappedTensors(folder / "export" / WEIGHTS) as tensors:
        weights: dict[str, Array] = {n: np.array(tensors.tensor(n)) for n in tensors}
    want = evaluate(model.graph, {given.name: inputs}, weights)[name]
    found = np.fromfile(folder / "output", made.type.dtype.numpy)
    if found.size != want.size:
        return f"gives {found.size} elements of {want.size}"
    _, wrong = compare(found.reshape(want.shape), want)
    return wrong and f"its output {wrong}"
