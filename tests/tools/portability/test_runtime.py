"""What is known of the runtimes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sexpgpu.tools.portability.cases import Case, Form, prepare
from sexpgpu.tools.portability.runtime import FOLDER, Reason, Runtime, read_runtimes

RUNTIMES = read_runtimes()

REASON = Reason("scan", r"no .*Scan", "It has no loops.", version="3.1")


def test_every_runner_is_a_runtimes() -> None:
    runners = {path.name for path in FOLDER.iterdir() if "_runner." in path.name}
    assert runners == {runtime.runner.name for runtime in RUNTIMES.values()}


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=lambda r: r.name)
def test_what_is_said_of_a_runtime(runtime: Runtime) -> None:
    for package in runtime.packages:
        assert re.search(r"(==|.@)\d", package), f"{package} has no version"
    assert "http" not in "".join(runtime.packages)
    keys = [reason.key for reason in runtime.reasons]
    assert len(keys) == len(set(keys))
    for reason in runtime.reasons:
        assert reason.version, "a reason is of a version"
        assert re.search(reason.error, "") is None, "a reason that explains all hides all"
        assert reason.change in (None, "unroll", "batch")
        for text in (reason.because, reason.instead):
            assert not text or text.endswith("."), text


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A model of one Mul."""
    folder = tmp_path_factory.mktemp("case")
    (folder / "net.sx").write_text(
        "(def record (fields :x (list f32 3)))\n(defn model (x) (* x 2.0))"
    )
    return prepare(folder / "net.sx", Form(), folder)


@pytest.mark.parametrize(
    ("error", "version", "explains"),
    [
        ("there is no Scan", "3.1", True),
        ("there is no Scan", "3.1.0rc2", True),
        ("there is no Scan", "", True),
        ("there is no Scan", "3.2", False),
        ("there is no LSTM", "3.1", False),
    ],
)
def test_a_reason_explains_its_own_error_in_its_own_version(
    error: str, version: str, explains: bool, case: Case
) -> None:
    assert REASON.explains(error, version, case) == explains


@pytest.mark.parametrize(
    ("where", "explains"),
    [
        ({"examples": ("net", "tiny")}, True),
        ({"examples": ("tiny",)}, False),
        ({"profiles": ("portable",)}, True),
        ({"profiles": ("fused",)}, False),
        ({"operators": ("Scan", "Mul")}, True),
        ({"operators": ("Scan",)}, False),
    ],
)
def test_a_reason_may_hold_in_some_cases(where: dict[str, Any], explains: bool, case: Case) -> None:
    assert replace(REASON, **where).explains("no Scan", "3.1", case) == explains
