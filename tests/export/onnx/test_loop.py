"""ONNX's Scan, as runtimes read it, and its steps written one after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.onnx import loop
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.schemas.errors import SexpgpuError
from support.programs import traced


@pytest.mark.parametrize("batch", [None, 4])
def test_what_a_scan_gives_has_the_batch(batch: int | None, tmp_path: Path) -> None:
    """Where it had not, ONNX Runtime would not fuse the norm of a sum with it, and round otherwise
    than where a gather stands between, which has the batch."""
    graph, _ = traced(
        "(def record (fields :x (list f32 5 64)))\n"
        "(defn model (x)\n"
        "  (let ((total all) (scan (fn (c x) (let (t (+ c x)) (list t t)))\n"
        "                          (zeros (list (dim x 0) 64)) x :axis 1))\n"
        "    (layer-normalize (+ x all) (ones 64) (zeros 64))))"
    )
    model = build_model(graph, {}.__getitem__, BuildOptions(batch=batch))
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert [node.op_type for node in optimized.graph.node][-1] == "SkipLayerNormalization"


# Three carries, one that never changes; a sequence in the middle of others; what a step reads from
# outside is a weight, an input's part and something computed of a weight.
SCAN = """
(def record (fields :x (list f32 2 5 4)))
(defmodel net (reverse)
  (parts w (param (list 4) :init (normal 1.0)))
  (apply (x)
    (let (rest  (slice x :axis 1 :to 1)
          decay (exp (neg (exp w)))
          z     (zeros (list (dim x 0) 2 4))
          step  (fn (state v)
                  (let ((a b c) state
                        next (+ (* a decay) (* v w) (mean rest :axis 2)))
                    (list (list next b (+ c 1.0)) (list next (* b v)))))
          (last all) (scan step (list z (+ z 3.0) z) x :axis 2 :reverse reverse))
      (list last all))))
(def model (net REVERSE))
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
def test_its_form_is_that_which_every_runtime_knows(reverse: bool, unroll: bool) -> None:
    graph, weights = traced(SCAN.replace("REVERSE", str(reverse).lower()))
    model = build_model(graph, weights.__getitem__, BuildOptions(unroll=unroll))
    onnx.checker.check_model(model, full_check=True)
    scans = [node for node in model.graph.node if node.op_type == "Scan"]
    assert len(scans) == (not unroll)
    for scan in scans:
        # Along the first axis and forward, which is the default.
        assert {attribute.name for attribute in scan.attribute} == {"body", "num_scan_inputs"}
        (body,) = [a.g for a in scan.attribute if a.name == "body"]
        known = {value.name for value in body.input}
        known |= {name for node in body.node for name in node.output}
        outside = {name for node in body.node for name in node.input} - known
        stored = {tensor.name for tensor in model.graph.initializer}
        assert "w" in outside
        assert outside <= stored, "OpenVINO finds nothing that was computed outside of a body"
    inputs = {"x": np.random.default_rng(0).standard_normal((3, 2, 5, 4)).astype(np.float32)}
    inputs = {model.graph.input[0].name: inputs["x"]}
    want = evaluate(graph, inputs, weights)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found in (session.run(None, inputs), ReferenceEvaluator(model).run(None, inputs)):
        for array, wanted in zip(found, want.values(), strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", ["lstm", "gru"])
def test_recurrent_layers_are_written_out_too(layer: str) -> None:
    graph, weights = traced(
        "(def record (fields :x (list f32 5 3)))\n"
        f"(defmodel net () (parts l ({layer}-layer 3 4)) (apply (x) (l x)))\n(def model (net))"
    )
    model = build_model(graph, weights.__getitem__, BuildOptions(unroll=True))
    assert not {"LSTM", "GRU", "Scan"} & {node.op_type for node in model.graph.node}
    x = np.random.default_rng(0).standard_normal((3, 5, 3)).astype(np.float32)
    inputs = {model.graph.input[0].name: x}
    (found,) = ReferenceEvaluator(model).run(None, inputs)
    (want,) = evaluate(graph, inputs, weights).values()
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_steps_that_are_too_many_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_MOST_NODES", 30)
    graph, weights = traced(SCAN.replace("REVERSE", "false"))
    with pytest.raises(SexpgpuError) as caught:
        build_model(graph, weights.__getitem__, BuildOptions(unroll=True))
    assert caught.value.code == "E-EXPORT-008"
    assert "5 of them" in caught.value.message
    assert "--unroll" in (caught.value.help or "")
