"""What comes of a case in a runtime: whatever it does is an outcome."""

from __future__ import annotations

import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.portability.cases import Case, Form, prepare
from sexpgpu.tools.portability.runtime import Reason, Runtime
from sexpgpu.tools.portability.trial import Outcome, attempt, attempts, compare, stored

PROGRAM = "(def record (fields :x (list f32 3)))\n(defn model (x) (* x 2.0))"

RUNNER = """
import os, time
def version(): return "1.0"
def load(path, case):
    LOAD
    return lambda inputs: RUN
"""
#: What a runtime may have, and a fake one has not.
NOTHING: dict[str, Any] = {
    **dict.fromkeys((field.name for field in fields(Runtime)), ()),
    "name": "fake",
    "title": "Fake",
    "fused": True,
    "seconds": 60,
}

RIGHT = "{'output': inputs['inputs'] * 2}"


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("case")
    (folder / "net.sx").write_text(PROGRAM)
    return prepare(folder / "net.sx", Form(), folder)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An environment that is this one."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def fake(place: Path, monkeypatch: pytest.MonkeyPatch, load: str, run: str) -> Runtime:
    """A runtime whose runner is of that text."""
    runner = place / "fake_runner.py"
    runner.write_text(RUNNER.replace("LOAD", load).replace("RUN", run))
    monkeypatch.setenv("PYTHONPATH", str(place))
    return Runtime(**{**NOTHING, "runner": runner})


def outcome(
    place: Path, case: Case, monkeypatch: pytest.MonkeyPatch, load: str, run: str
) -> Outcome:
    runtime = fake(place, monkeypatch, load, run)
    return attempt(runtime, place, case, place / "results", again=False)


def test_it_agrees(place: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcome(place, case, monkeypatch, "pass", RIGHT)
    assert (found.verdict, found.version, found.error) == ("agrees", "1.0", "")
    assert found.difference == 0
    assert found.seconds is not None
    assert 0 < found.seconds < 1


@pytest.mark.parametrize(
    ("load", "run", "verdict", "words"),
    [
        ("raise ValueError('no Mul')", RIGHT, "load", "ValueError: no Mul"),
        ("pass", "1 / 0", "run", "with a batch of 1: ZeroDivisionError"),
        ("pass", "{'output': inputs['inputs'] * 2.01}", "differs", "differs by 0.005"),
        ("pass", "{'output': inputs['inputs'][:1] * 2}", "differs", "is [1, 3] float32, not [3,"),
        ("pass", "{'other': inputs['inputs'] * 2}", "differs", "`output` is not among"),
        ("os.abort()", RIGHT, "load", "ended by SIGABRT"),
        ("print('last words'); os._exit(3)", RIGHT, "load", "exit status 3: last words"),
    ],
)  # fmt: skip
def test_it_does_not(
    load: str,
    run: str,
    verdict: str,
    words: str,
    place: Path,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = outcome(place, case, monkeypatch, load, run)
    assert found.verdict == verdict
    assert words in found.error


def test_it_hangs(place: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = replace(fake(place, monkeypatch, "time.sleep(60)", RIGHT), seconds=1)
    found = attempt(runtime, place, case, place / "results", again=False)
    assert (found.verdict, found.error) == ("load", "took longer than 1 seconds")


def test_it_is_run_again_where_the_runner_is_another(
    place: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [outcome(place, case, monkeypatch, "pass", RIGHT).seconds for _ in range(2)]
    assert times[0] == times[1]
    assert outcome(place, case, monkeypatch, "1 / 0", RIGHT).verdict == "load"
    again = fake(place, monkeypatch, "1 / 0", RIGHT)
    (place / "results" / "fake" / "net-portable.json").unlink()
    assert attempt(again, place, case, place / "results", again=True).verdict == "load"


def test_a_form_that_gets_round_a_reason(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.sx").write_text(
        "(def record (fields :x (list f32 4 3)))\n"
        "(defn model (x)\n"
        "  (nth (scan (fn (c v) (let (t (+ c v)) (list t t))) (zeros (list (dim x 0) 3)) x\n"
        "             :axis 1) 1))"
    )
    refuses = "assert b'Scan' not in open(path, 'rb').read(), 'no Scan'"
    runtime = fake(place, monkeypatch, refuses, "{'output': inputs['inputs'].cumsum(1)}")
    reasons = (
        Reason("other", "no Loop", "It has no Loop.", change="batch"),
        Reason("scan", "no Scan", "It has no Scan.", version="1", change="unroll"),
    )

    def run(runtime: Runtime) -> list[tuple[str, str, str]]:
        found = attempts(
            runtime,
            place,
            Form(),
            lambda form: prepare(tmp_path / "net.sx", form, tmp_path),
            place / "results",
            again=False,
        )
        return [(each.form, each.verdict, each.reason) for each in found]

    known = run(replace(runtime, reasons=reasons))
    assert known == [("", "load", "scan"), ("unrolled", "agrees", "")]
    last = stored(replace(runtime, reasons=reasons), "net", Form(), tmp_path)
    assert [(each.form, each.verdict, each.reason) for each in last] == known
    assert not list(stored(runtime, "other", Form(), tmp_path))
    # What is not known may be the batch, which is tried.
    assert run(runtime) == [("", "load", ""), ("batch 1", "load", "")]
    stays = replace(reasons[1], change=None)
    assert run(replace(runtime, reasons=(stays,))) == [("", "load", "scan")]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("found", "want", "words"),
    [
        ([1.0, 2.0], [1.0, 2.0001], ""),
        ([1.0, 2.0], [1.0, 2.001], "differs by 0.0005"),
        ([0.0, NAN, INF], [0.0, NAN, INF], ""),
        ([0.0, NAN, -INF], [0.0, NAN, INF], "not infinite or NaN at the same places"),
        ([0.0, NAN, 1.0], [0.0, NAN, INF], "not infinite or NaN at the same places"),
        ([NAN], [1.0], "where it is to be a number"),
        ([0.0], [0.0], ""),
        ([], [], ""),
        ([[1.0]], [1.0], "is [1, 1] float32, not [1] float32"),
    ],
)
def test_floats_are_near(found: list[float], want: list[float], words: str) -> None:
    _, said = compare(np.asarray(found, np.float32), np.asarray(want, np.float32))
    assert (words in said) if words else not said


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_])
def test_what_is_no_float_is_equal(dtype: type) -> None:
    want: Array = np.asarray([0, 1, 1, 0], dtype)
    assert compare(want.copy(), want) == (0.0, "")
    assert compare(~want.astype(bool), want)[1]
    other = want.copy()
    other[1] = 0
    assert compare(other, want) == (0.25, "differs in 1 of 4 elements")


@pytest.mark.parametrize(
    ("body", "factor", "verdict"),
    # Of the first a thousandth is left of what was rounded.
    [("(- (* x 1.001) x)", 0.001, "agrees"), ("x", 1.0, "differs")],
)
def test_more_may_differ_where_rounding_explains_it(
    body: str,
    factor: float,
    verdict: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "net.sx"
    path.write_text(f"(def record (fields :x (list f32 64)))\n(defn model (x) {body})")
    case = prepare(path, Form(), tmp_path)
    run = f"{{'output': inputs['inputs'] * numpy.float32({factor} * 1.0003)}}"
    runtime = fake(place, monkeypatch, "import numpy; globals().update(numpy=numpy)", run)
    found = attempt(runtime, place, case, place / "results", again=False)
    assert found.verdict == verdict
    assert found.difference == pytest.approx(3e-4, rel=0.6)
