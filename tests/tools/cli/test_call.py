"""`sexpgpu call` against a server in a thread."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from sexpgpu.serve.hosted import Limits
from sexpgpu.tools.cli import main
from support.serving import Live, declare, identity, onnx_hosted, serving

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """`x` of [1, 2] f32 and `at` of [1] i32, which has 8 positions; both come back changed."""
    hosted = onnx_hosted(
        declare({"x": ("f32", [2]), "at": ("i32", [])}),
        declare({"logits": ("f32", [2]), "position": ("i32", [])}),
        "logits = Neg (x)\nposition = Neg (at)",
        {"at": Limits(0, 8)},
    )
    with serving(hosted) as running:
        yield running


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command: its exit status, and what it writes on stdout and stderr."""

    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(["call", *arguments])
        shown = capsys.readouterr()
        return int(caught.value.code or 0), shown.out, shown.err

    return run


def outputs(result: tuple[int, str, str]) -> dict[str, Any]:
    status, out, err = result
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)["outputs"]
    return found


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_json_in_and_out(live: Live, call: Call) -> None:
    found = outputs(call(live.path, "--input", "x=[[0.1, -2]]", "--input", "at=3"))
    assert found == {"logits": [[-0.1, 2.0]], "position": [-3]}


def test_files_in(live: Live, call: Call, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(npy(np.array([[1, 2]], np.float32)))
    (tmp_path / "at.json").write_text("[5]")
    found = outputs(
        call(live.path, "--input", f"x={tmp_path / 'x.npy'}", "--input", f"at={tmp_path}/at.json")
    )
    assert found == {"logits": [[-1.0, -2.0]], "position": [-5]}


@pytest.mark.parametrize("stdin", [b"[1, 2]", npy(np.array([1, 2], np.float32))])
def test_stdin(live: Live, call: Call, stdin: bytes) -> None:
    found = outputs(call(live.path, "--input", "x=-", "--input", "at=0", stdin=stdin))
    assert found["logits"] == [[-1.0, -2.0]]


def test_numbers_that_json_does_not_have(live: Live, call: Call) -> None:
    for text in ('["NaN", "-Infinity"]', "[NaN, -Infinity]", '["nan", "-inf"]'):
        found = outputs(call(live.path, "--input", f"x={text}", "--input", "at=0"))
        assert found["logits"] == [["NaN", "Infinity"]]


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("f32", "[[0.1, -0.0, 1e+30]]"),
        ("f64", "[[0.1, -0.0, 1e+300]]"),
        ("bf16", "[[0.5, -0.0, 3.0]]"),
        ("i32", f"[[0, -5, {2**31 - 1}]]"),
        ("i64", f"[[0, -5, {2**63 - 1}]]"),
        ("bool", "[[true, false, true]]"),
    ],
)
def test_every_dtype(call: Call, dtype: str, text: str) -> None:
    with serving(identity(dtype, [3])) as live:
        found = outputs(call(live.path, "--input", f"x={text}"))
    assert json.dumps(found["y"]) == text


def test_shapes_of_every_rank(call: Call) -> None:
    hosted = onnx_hosted(
        declare({"a": ("i32", []), "b": ("f32", [0, 2]), "c": ("bool", [2, 1, 2])}),
        declare({"p": ("i32", []), "q": ("f32", [0, 2]), "r": ("bool", [2, 1, 2])}),
        "p = Neg (a)\nq = Neg (b)\nr = Not (c)",
    )
    with serving(hosted) as live:
        found = outputs(
            call(
                live.path,
                *("--input", "a=1", "--input", "b=[[]]".replace("[[]]", "-")),
                *("--input", "c=[[[true, false]], [[false, true]]]"),
                stdin=npy(np.zeros((0, 2), np.float32)),
            )
        )
    assert found == {"p": [-1], "q": [[]], "r": [[[[False, True]], [[True, False]]]]}


def test_outputs_as_files(live: Live, call: Call, tmp_path: Path) -> None:
    given = (live.path, "--input", "x=[1, 2]", "--input", "at=3")
    folder = tmp_path / "new" / "folder"
    status, out, err = call(*given, "-o", str(folder))
    assert (status, err) == (0, "")
    assert out == (
        f"wrote {folder}/logits.npy: logits [1, 2] f32\n"
        f"wrote {folder}/position.npy: position [1] i32\n"
    )
    np.testing.assert_array_equal(np.load(folder / "logits.npy"), np.array([[-1, -2]], np.float32))
    file = tmp_path / "p.npy"
    status, out, err = call(*given, "--npy", f"position={file}")
    data = json.loads(out)
    assert data == {"outputs": {"logits": [[-1.0, -2.0]]}, "files": {"position": str(file)}}
    assert np.load(file).tolist() == [-3]


def test_bf16_survives_a_file(call: Call, tmp_path: Path) -> None:
    values = np.array([[0.5, -3, 1e30]], ml_dtypes.bfloat16)
    (tmp_path / "x.npy").write_bytes(npy(values))
    with serving(identity("bf16", [3])) as live:
        status, _, err = call(live.path, "--input", f"x={tmp_path}/x.npy", "-o", str(tmp_path))
    assert (status, err) == (0, "")
    assert np.load(tmp_path / "y.npy").view(ml_dtypes.bfloat16).tobytes() == values.tobytes()


def test_an_output_whose_name_looks_like_a_path_stays_in_its_folder(
    call: Call, tmp_path: Path
) -> None:
    hosted = onnx_hosted("float[N] x", "float[N] y, float[N] z", "y = Neg (x)\nz = Neg (x)")
    names = {"y": "../../evil", "z": "a/b"}
    hosted.outputs = tuple(
        type(spec)(names[spec.name], spec.shape, spec.dtype) for spec in hosted.outputs
    )
    assert isinstance(hosted.model, bytes)
    model = onnx.load_from_string(hosted.model)
    for node, value in zip(model.graph.node, model.graph.output, strict=True):
        node.output[0] = value.name = names[value.name]
    hosted.model = model.SerializeToString()
    folder = tmp_path / "deep" / "er"
    with serving(hosted) as live:
        status, _, err = call(live.path, "--input", "x=1", "-o", str(folder))
    assert (status, err) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == [".._.._evil.npy", "a_b.npy"]


def test_without_inputs_it_shows_what_the_model_takes(live: Live, call: Call) -> None:
    status, out, _ = call(live.path)
    assert status == 0
    assert out == (
        "a model, on cpu\n"
        "  inputs  x [1, 2] f32\n"
        "          at [1] i32\n"
        "  outputs logits [1, 2] f32\n"
        "          position [1] i32\n"
        f"call it: sexpgpu call {live.path} --input x=… --input at=…\n"
    )
    status, out, _ = call(live.path, "--json")
    assert json.loads(out)["inputs"][1] == {"name": "at", "shape": [1], "dtype": "i32"}


def test_a_model_that_takes_nothing_is_called(call: Call) -> None:
    hosted = onnx_hosted("", "float[2] y", "y = Constant <value = float[2] {1.0, 2.0}> ()")
    with serving(hosted, limit=1) as live:
        assert outputs(call(live.path)) == {"y": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--input", "x=[1, 2]"], "E-CALL-010", "inputs are missing"),
        (["--input", "xx=[1, 2]", "--input", "at=1"], "E-CALL-010", "did you mean `x`?"),
        (["--input", "x=[1, 2, 3]", "--input", "at=1"], "E-CALL-010", "another shape"),
        (["--input", "x=[[1], [2, 3]]", "--input", "at=1"], "E-CALL-010", "is no array"),
        (["--input", "x=[1, null]", "--input", "at=1"], "E-CALL-010", "holds no numbers"),
        (["--input", 'x={"a": 1}', "--input", "at=1"], "E-CALL-010", "holds no numbers"),
        (["--input", 'x=["one", 2]', "--input", "at=1"], "E-CALL-010", "holds no numbers"),
        (["--input", "x=[1, 2]", "--input", "at=1.5"], "E-CALL-010", "keep its values"),
        (["--input", "x=none.npy", "--input", "at=1"], "E-CALL-010", "neither JSON nor a file"),
        (["--input", "x=/", "--input", "at=1"], "E-CALL-010", "neither JSON nor a file"),
        (["--input", "x=-", "--input", "at=1"], "E-CALL-010", "neither .npy nor JSON"),
        (["--input", "x=[1, 2]", "--input", "at=8"], "E-CLIENT-002", "8 is outside 0 to 7"),
        (
            ["--input", "x=[1, 2]", "--input", "at=1", "--npy", "logit=f"],
            "E-CALL-010",
            "did you mean `logits`?",
        ),
        (
            ["--input", "x=[1, 2]", "--input", "at=1", "-o", "/dev/null/x"],
            "E-FILE-001",
            "cannot write the output",
        ),
    ],
)
def test_errors(live: Live, call: Call, arguments: list[str], code: str, words: str) -> None:
    status, out, err = call(live.path, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"error[{code}]")
    assert words in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--input", "x"],
        ["--input", "=1"],
        ["--input", "x=1", "--input", "x=2"],
        ["--input", "x=-", "--input", "at=-"],
        ["--timeout", "0"],
    ],
)
def test_wrong_usage(live: Live, call: Call, arguments: list[str]) -> None:
    status, _, err = call(live.path, *arguments)
    assert status == 2
    assert err.startswith("error[E-USAGE-001]")


def test_no_server(call: Call, tmp_path: Path) -> None:
    status, _, err = call(str(tmp_path / "none"))
    assert status == 1
    assert err.startswith("error[E-CLIENT-001]: no server answers at")
    status, out, _ = call(str(tmp_path / "none"), "--json")
    assert json.loads(out)["error"]["code"] == "E-CLIENT-001"


def test_a_pickle_is_not_opened(live: Live, call: Call, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    status, _, err = call(live.path, "--input", f"x={file}", "--input", "at=1")
    assert status == 1
    assert "neither .npy nor JSON" in err
