"""What runs a case in Python: tensors come through, and a runner's failure says how far it came."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sexpgpu.tools.portability.runtime import FOLDER
from sexpgpu.tools.portability.runtimes import exchange

TENSORS: dict[str, exchange.Array] = {
    "f32": np.array([[1.5, -np.inf], [np.nan, 0]], np.float32),
    "f64": np.array([1e300], np.float64),
    "i32": np.array(-7, np.int32),
    "i64": np.array([[2**62]], np.int64),
    "bool": np.array([True, False, True]),
    "none": np.zeros((0, 3), np.float32),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
}


def test_tensors_are_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "tensors.safetensors"
    exchange.write_tensors(path, TENSORS)
    for found in (exchange.read_tensors(path), load_file(path)):
        assert list(found) == list(TENSORS)
        for name, array in TENSORS.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)


def test_a_dtype_that_no_model_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`x` is of dtype float16"):
        exchange.write_tensors(tmp_path / "t", {"x": np.zeros(2, np.float16)})


def test_it_imports_nothing_of_ours() -> None:
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import exchange; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name.startswith("sexpgpu")]


def run(runner: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    """The exit status and result.json of batches of one and three in a runner of that text."""
    case, out = folder / "case", folder / "out"
    case.mkdir()
    out.mkdir()
    (case / "case.json").write_text(json.dumps({"batches": [1, 3]}))
    for batch in (1, 3):
        exchange.write_tensors(
            case / f"inputs-{batch}.safetensors", {"x": np.ones((batch, 2), np.float32)}
        )
    name = f"runner_{folder.name}"
    (folder / f"{name}.py").write_text(runner)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(exchange, "RUNS", 2)
    return exchange.main(name, case, out), json.loads((out / "result.json").read_text())


RUNNER = """
def version(): return "7"
def load(path, case):
    LOAD
    def run(inputs):
        RUN
        return {"y": inputs["x"] * 2}
    return run
"""


def test_a_case_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RUNNER.replace("LOAD", "assert path.endswith('model.onnx')").replace("RUN", "pass")
    status, result = run(text, tmp_path, monkeypatch)
    assert (status, result["failure"], result["version"]) == (0, None, "7")
    assert [each["batch"] for each in result["runs"]] == [1, 3]
    assert all(each["seconds"] >= 0 for each in result["runs"])
    found = exchange.read_tensors(tmp_path / "out" / "outputs-3.safetensors")
    np.testing.assert_array_equal(found["y"], np.full((3, 2), 2.0))


def test_a_file_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = RUNNER.replace("LOAD", "raise OSError('no Scan')").replace("RUN", "pass")
    status, result = run(text, tmp_path, monkeypatch)
    assert (status, result["version"], result["runs"]) == (1, "7", [])
    assert result["failure"] == {"stage": "load", "error": "OSError: no Scan"}


def test_a_batch_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = "if len(inputs['x']) == 3: raise ValueError('one record')"
    status, result = run(
        RUNNER.replace("LOAD", "pass").replace("RUN", fails), tmp_path, monkeypatch
    )
    assert (status, [each["batch"] for each in result["runs"]]) == (1, [1])
    assert result["failure"] == {"stage": "run", "batch": 3, "error": "ValueError: one record"}


def test_a_runtime_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, result = run("import no_such_runtime", tmp_path, monkeypatch)
    assert (status, result["failure"]["stage"]) == (1, "import")
    assert "no_such_runtime" in result["failure"]["error"]
