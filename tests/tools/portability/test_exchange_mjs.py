"""What runs a case in Node: files are those of Python, and whatever happens is written down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.tools.portability.runtime import FOLDER
from sexpgpu.tools.portability.runtimes.exchange import Array, read_tensors, write_tensors

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")

TENSORS: dict[str, Array] = {
    "f32": np.array([[1.5, -np.inf], [np.nan, 0]], np.float32),
    "f64": np.array([1e300], np.float64),
    "bits of bf16": np.array([0x3F80, 1], np.uint16),
    "i32": np.array(-7, np.int32),
    "i64": np.array([[2**62]], np.int64),
    "bool": np.array([True, False, True]),
    "none": np.zeros((0, 3), np.float32),
}

#: A runner that gives what it is given.
SAME = "export const version = () => '7'; export const load = () => ({ run: async (x) => x });"


def run(runner: str, folder: Path, batches: list[int]) -> tuple[int, dict[str, Any]]:
    """The exit status and result.json of a case of TENSORS in a runner of that text."""
    module, case, out = folder / "fake_runner.mjs", folder / "case", folder / "out"
    module.write_text(runner)
    case.mkdir()
    out.mkdir()
    (case / "case.json").write_text(json.dumps({"batches": batches}))
    for batch in batches:
        write_tensors(case / f"inputs-{batch}.safetensors", TENSORS)
    name = os.path.relpath(module.with_suffix(""), FOLDER)
    done = subprocess.run(
        ["node", str(FOLDER / "exchange.mjs"), name, str(case), str(out)],
        capture_output=True,
        timeout=60,
    )
    return done.returncode, json.loads((out / "result.json").read_text())


def test_every_dtype_comes_through(tmp_path: Path) -> None:
    status, result = run(SAME, tmp_path, [1, 3])
    assert (status, result["failure"], result["version"]) == (0, None, "7")
    assert [each["batch"] for each in result["runs"]] == [1, 3]
    assert all(each["seconds"] >= 0 for each in result["runs"])
    for batch in (1, 3):
        found = read_tensors(tmp_path / "out" / f"outputs-{batch}.safetensors")
        assert list(found) == list(TENSORS)
        for name, array in TENSORS.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert found[name].tobytes() == array.tobytes()


def test_a_runner_may_measure_the_smallest_batch_itself(tmp_path: Path) -> None:
    runner = SAME.replace("(x) => x", "(x) => x, measure: async (x) => x.i32.bytes.length")
    _, result = run(runner, tmp_path, [3, 1])
    assert [each["batch"] for each in result["runs"]] == [3, 1]
    assert result["runs"][1]["seconds"] == 4
    assert result["runs"][0]["seconds"] != 4


@pytest.mark.parametrize(
    ("runner", "status", "failure"),
    [
        ("import 'no-such-package';", 1, {"stage": "import", "error": "no-such-package"}),
        (SAME.replace("({", "{ throw 42; ({", 1) + "}", 1, {"stage": "load", "error": "42"}),
        (
            SAME.replace("=> x", "=> { throw new RangeError('too long'); }"),
            1,
            {"stage": "run", "batch": 1, "error": "RangeError: too long"},
        ),
        (
            SAME.replace("=> x", "=> process.abort()"),
            -6,
            {"stage": "run", "batch": 1, "error": "the process ended"},
        ),
    ],
    ids=["import", "load", "run", "crash"],
)
def test_a_failure_says_where(
    tmp_path: Path, runner: str, status: int, failure: dict[str, Any]
) -> None:
    found, result = run(runner, tmp_path, [1])
    assert found == status
    assert failure["error"] in result["failure"].pop("error")
    del failure["error"]
    assert result["failure"] == failure
