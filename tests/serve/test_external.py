"""Weights in files beside an ONNX file: found through links, and never outside of its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.foreign import alone, cpu, refused

WEIGHT = np.arange(600, dtype=np.float32).reshape(3, 200) / 7
X = np.linspace(-1, 1, 3, dtype=np.float32).reshape(1, 3)


def save_outside(path: Path, location: str, body: str = "y = MatMul (x, w)") -> Path:
    """A file whose weight `w` stands in another, at `location` seen from it."""
    text = (
        '<ir_version: 9, opset_import: ["" : 20]> g (float[N,3] x, bool b) => (float[N,M] y) '
        f"{{ {body} }}"
    )
    model = onnx.parser.parse_model(text)
    if "If" not in body:
        del model.graph.input[1]
    tensor = numpy_helper.from_array(WEIGHT, "w")
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(len(data)))):
        tensor.external_data.add(key=key, value=value)
    _graph_of(model).initializer.append(tensor)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    (path.parent / "data").write_bytes(data)
    return path


def _graph_of(model: onnx.ModelProto) -> onnx.GraphProto:
    """The graph that the weight belongs to: a body's where there is one."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "then_branch":
                return attribute.g
    return model.graph


#: What leaves the file as it is, and what changes it.
SHAPINGS: list[dict[str, Any]] = [{}, {"precision": "bf16"}]


@pytest.mark.parametrize("shaping", SHAPINGS, ids=str)
@pytest.mark.parametrize("known", [True, False], ids=["sizes known", "sizes measured"])
def test_a_cache_that_is_made_of_links(tmp_path: Path, shaping: Any, known: bool) -> None:
    """The file and its weights stand elsewhere, under other names."""
    path = save_outside(tmp_path / "made" / "m.onnx", "m.data")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    path.rename(blobs / "aaaa")
    (path.parent / "data").rename(blobs / "bbbb")
    (snapshot / "m.onnx").symlink_to("../../blobs/aaaa")
    (snapshot / "m.data").symlink_to("../../blobs/bbbb")
    dimensions = {"M": 200} if known else None
    with cpu(snapshot / "m.onnx", dimensions=dimensions, **shaping) as model:
        found = model(X)
    want = alone(snapshot / "m.onnx", {"x": X})[0]
    np.testing.assert_allclose(found, want, rtol=1e-2 if shaping else 0)


@pytest.mark.parametrize("shaping", SHAPINGS, ids=str)
@pytest.mark.parametrize("where", ["here", "folder", "linked folder", "linked file"])
def test_weights_beside_it(tmp_path: Path, shaping: Any, where: str) -> None:
    location = {"here": "data", "linked file": "link"}.get(where, "deep/data")
    path = save_outside(tmp_path / "with a space, and ü" / "m.onnx", location)
    data = path.parent / "data"
    if where == "folder":
        (path.parent / "deep").mkdir()
        data.rename(path.parent / "deep" / "data")
    elif where == "linked folder":
        (path.parent / "real").mkdir()
        data.rename(path.parent / "real" / "data")
        (path.parent / "deep").symlink_to("real")
    elif where == "linked file":
        (path.parent / "link").symlink_to("data")
    with cpu(path, **shaping) as model:
        np.testing.assert_allclose(model(X), X @ WEIGHT, rtol=2e-2 if shaping else 1e-6)


@pytest.mark.parametrize("shaping", SHAPINGS, ids=str)
@pytest.mark.parametrize("where", ["above", "absolute", "a link", "nowhere", "a circle", "no path"])
def test_what_leaves_the_folder_is_refused(tmp_path: Path, shaping: Any, where: str) -> None:
    outside = tmp_path / "outside"
    location = {"above": "../outside", "absolute": str(outside), "no path": "a" * 5000}
    path = save_outside(tmp_path / "inside" / "m.onnx", location.get(where, "weights"))
    (path.parent / "data").rename(outside)
    if where == "a link":
        (path.parent / "weights").symlink_to(outside)
    elif where == "a circle":
        (path.parent / "weights").symlink_to("weights")
    code = "E-VERIFY-002"
    assert refused(path, code, dimensions={"M": 200}, **shaping).place == str(path)


def test_a_weight_of_a_branch(tmp_path: Path) -> None:
    """It is changed as a whole, and found as before."""
    body = """
        y = If (b) <
            then_branch = a () => (float[N,200] p) { p = MatMul (x, w) },
            else_branch = o () => (float[N,200] q) { v = Constant <value_float = 2.0> ()
                s = Constant <value_ints = [3, 200]> () u = Expand (v, s) q = MatMul (x, u) }
        >"""
    path = save_outside(tmp_path / "blobs" / "aaaa", "m.data", body)
    (path.parent / "data").rename(path.parent / "bbbb")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "m.onnx").symlink_to(path)
    (folder / "m.data").symlink_to(path.parent / "bbbb")
    with cpu(folder / "m.onnx", dimensions={"M": 200}, precision="bf16") as model:
        np.testing.assert_allclose(model(X, True), X @ WEIGHT, rtol=2e-2)
        np.testing.assert_allclose(model(X, False), X.sum() * 2 + np.zeros((1, 200)), atol=1e-6)


@pytest.mark.parametrize("shaping", SHAPINGS, ids=str)
def test_a_name_that_is_not_utf_8(tmp_path: Path, shaping: Any) -> None:
    path = save_outside(tmp_path / os.fsdecode(b"\xff") / "m.onnx", "data")
    error = refused(path, "E-FILE-001", dimensions={"M": 200}, **shaping)
    assert "not UTF-8" in error.message
    (tmp_path / "link.onnx").symlink_to(path)
    assert refused(tmp_path / "link.onnx", "E-FILE-001", **shaping).message == error.message
