"""What a file does not say of its outputs, seen by running it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.foreign import alone, cpu, opened, refused, save


def test_a_shape_that_is_not_said_is_seen_by_running(tmp_path: Path) -> None:
    body = "s = Constant <value_ints = [-1, 2]> () y = Reshape (x, s)"
    path = save(tmp_path / "m.onnx", "float[N,3,2] x", "float[P,Q] y", body)
    hosted = opened(path)
    assert hosted.outputs[0].shape == (3, 2)
    assert hosted.obstacle == ""
    x = np.random.default_rng(0).standard_normal((5, 3, 2)).astype(np.float32)
    with cpu(path) as model:
        assert model(x).tobytes() == alone(path, {"x": x})[0].tobytes()


def test_a_batch_that_is_parted_runs_one_at_a_time(tmp_path: Path) -> None:
    # Two positions of the second axis for each record: a record's elements do not lie together.
    body = """
    s = Constant <value_ints = [2, -1]> ()
    t = Transpose <perm = [1, 0]> (x)
    y = Reshape (t, s)
    """
    path = save(tmp_path / "m.onnx", "float[N,4] x", "float[P,Q] y", body)
    hosted = opened(path)
    assert hosted.outputs[0].shape == (2, 2)
    assert hosted.obstacle == "`y` has no axis of records"


def test_a_shape_that_depends_on_values_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", "float[N] x", "int64[1,P] y", "y = NonZero (x)")
    assert refused(path).message == "the shape of `y` depends on the values of the inputs"


def test_a_file_that_does_not_run_on_zeros_says_which_sizes_it_wants(tmp_path: Path) -> None:
    body = """
    start = Constant <value_int = 5> ()
    rows = Sub (k, start)
    one = Constant <value_ints = [1]> ()
    count = Reshape (rows, one)
    wide = Concat <axis = 0> (count, one)
    y = Expand (x, wide)
    """
    path = save(tmp_path / "m.onnx", "float[1,2] x, int64 k", "float[P,Q] y", body)
    assert refused(path).help == "say them: --dim P=N --dim Q=N"
    with cpu(path, dimensions={"P": 2, "Q": 2}) as model:
        assert model(np.ones((1, 2), np.float32), 7).shape == (2, 2)
