"""Examples as cases: exported, with inputs and the outputs that they are to give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.portability import cases
from sexpgpu.tools.portability.cases import Form, find_programs, prepare
from sexpgpu.tools.portability.runtimes.exchange import read_tensors

NET = """
(def record (fields :ids (list i32 5) :x (list f32 5 3)))
(defmodel net ()
  (parts names (embedding 7 3) memory (lstm-layer 3 4))
  (apply (ids x) (list :h (memory (+ x (names ids))) :best (argmax x))))
(def model (net))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "net.sx"
    path.write_text(NET)
    return path


def test_every_example_is_found() -> None:
    programs = find_programs()
    assert {"tiny", "minilm"} <= set(programs)
    assert all(path.name == f"{name}.sx" for name, path in programs.items())


def test_a_case_holds_what_a_runner_reads(program: Path, tmp_path: Path) -> None:
    case = prepare(program, Form(), tmp_path)
    about = json.loads((case.folder / "case.json").read_text())
    assert (about["batches"], about["fixed"]) == ([1, 3], False)
    assert [(i["name"], i["shape"]) for i in about["inputs"]] == [
        ("inputs.0", [None, 5]),
        ("inputs.1", [None, 5, 3]),
    ]
    assert [(o["name"], o["dtype"]) for o in about["outputs"]] == [("h", "f32"), ("best", "i32")]
    session = ort.InferenceSession(
        str(case.folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    for batch in case.batches:
        inputs = read_tensors(case.folder / f"inputs-{batch}.safetensors")
        assert 0 <= inputs["inputs.0"].min() <= inputs["inputs.0"].max() < 7
        want = read_tensors(case.folder / f"outputs-{batch}.safetensors")
        found = dict(zip(("h", "best"), session.run(["h", "best"], inputs), strict=True))
        assert len(found["h"]) == batch
        np.testing.assert_allclose(found["h"], want["h"], atol=1e-6)
        np.testing.assert_array_equal(found["best"], want["best"])


def test_matrices_of_zeros_hide_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.sx"
    path.write_text(
        "(def record (fields :x (list f32 3)))\n"
        "(defmodel net () (parts out (linear 3 4 :init (zeros))) (apply (x) (out x)))\n"
        "(def model (net))"
    )
    folder = prepare(path, Form(), tmp_path).folder
    assert read_tensors(folder / "outputs-1.safetensors")["output"].all()
    weights = read_tensors(folder / "params.safetensors")
    assert weights["out.w"].all()
    assert not weights["out.b"].any()


def test_forms(program: Path, tmp_path: Path) -> None:
    form = Form("fused").changed("unroll").changed("batch")
    assert (str(form), form.words) == ("fused-unroll-batch-1", "unrolled, batch 1")
    assert (str(Form()), Form().words) == ("portable", "")
    case = prepare(program, form, tmp_path)
    assert case.batches == [1]
    model = onnx.load(case.folder / "model.onnx", load_external_data=False)
    assert "LSTM" not in {node.op_type for node in model.graph.node}
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 5]


def test_a_case_is_made_once_and_anew_when_its_program_is_another(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(
        cases, "_subject", lambda p, b, old=cases._subject: made.append(p) or old(p, b)
    )
    first = prepare(program, Form(), tmp_path)
    assert prepare(program, Form(), tmp_path) == first
    assert len(made) == 1
    program.write_text(NET.replace("embedding 7", "embedding 8"))
    again = prepare(program, Form(), tmp_path)
    assert (again.folder, len(made)) == (first.folder, 2)
    assert again.key != first.key
    assert sorted(path.name for path in first.folder.parent.iterdir()) == ["portable"]


def test_a_case_is_the_same_wherever_it_is_made(program: Path, tmp_path: Path) -> None:
    """What came of it is kept under the bytes of its files."""
    first, second = (prepare(program, Form(), tmp_path / place).folder for place in "ab")
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.sx"
    path.write_text("(def record (fields :x (list f32 3)))\n(def model 7)")
    with pytest.raises(SexpgpuError):
        prepare(path, Form(), tmp_path)
    assert not list((tmp_path / "cases").rglob("*.onnx"))


def test_weights_that_a_knob_names_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(cases, "fetch_model", fetched.append)
    path = tmp_path / "net.sx"
    path.write_text(
        '(defknob a "build/models/minilm/model.safetensors")\n'
        '(defknob b "build/models/made-by-a-script/data.npz")\n' + NET
    )
    prepare(path, Form(), tmp_path)
    assert fetched == ["minilm"]
