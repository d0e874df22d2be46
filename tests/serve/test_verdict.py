"""A probe's verdict is remembered where it is sure to hold, and found anew where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.serve import verdict
from sexpgpu.serve.engine import Buffers, Engine
from sexpgpu.serve.probe import Plan, probe
from sexpgpu.serve.session import open_session
from sexpgpu.serve.verdict import probe_once
from support.hosting import CPU
from support.serving import onnx_hosted


class Counting(Engine):
    """An engine that notes its runs' sizes, takes so long for each record, and errs at a size.

    By a clock of its own, `now`, which goes on with its runs.
    """

    seconds = 1e-4
    wrong = 0

    def __init__(self, limit: int = 8, identity: bytes = b"a model") -> None:
        hosted = onnx_hosted("float[N,5] x", "float[N,5] y", "y = Neg (x)")
        hosted.identity = identity
        super().__init__(open_session(hosted, CPU, 1), hosted, limit, clock=lambda: self.now)
        self.now = 0.0
        self.sizes: list[int] = []

    def run(self, size: int, buffers: Buffers | None = None) -> None:
        self.sizes.append(size)
        self.now += self.seconds * size
        super().run(size, buffers)
        if size == self.wrong:
            row = (buffers or self.buffers).outputs[0].row(0)
            row[0] = row[0] ^ 1


@pytest.fixture(autouse=True)
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Engine]:
    """An empty cache; the engines that were probed in full."""
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    engines: list[Engine] = []

    def counted(engine: Engine, seconds: float) -> Plan:
        engines.append(engine)
        return probe(engine, seconds)

    monkeypatch.setattr(verdict, "probe", counted)
    return engines


def test_the_second_time_every_size_is_tried_for_a_moment(probed: list[Engine]) -> None:
    first, second = Counting(), Counting()
    plan = probe_once(first, 1, 0.05, again=0.01)
    assert probe_once(second, 1, 0.05, again=0.01) == plan
    assert probed == [first]
    assert set(second.sizes) == set(plan.sizes) == set(range(1, 9))
    assert len(second.sizes) < len(first.sizes)


def test_of_a_slow_model_what_time_allows(probed: list[Engine]) -> None:
    first, second = Counting(4), Counting(4)
    first.seconds = second.seconds = 0.01
    plan = probe_once(first, 1, 0.05, again=0.01)
    assert probe_once(second, 1, 0.05, again=0.01) == plan
    assert probed == [first]
    assert second.sizes == [1], "a lone call is run: it is the warm-up"


def test_what_no_longer_holds_is_found_anew(probed: list[Engine]) -> None:
    probe_once(Counting(), 1, 0.05, again=0.01)
    wrong = Counting()
    wrong.wrong = 3
    assert probe_once(wrong, 1, 0.05, again=0.01).refused == (3,)
    assert len(probed) == 2
    # And this is what is remembered from now on.
    again = Counting()
    again.wrong = 3
    assert probe_once(again, 1, 0.05, again=0.01).refused == (3,)
    assert len(probed) == 2


def test_other_facts_are_probed(probed: list[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    probe_once(Counting(), 1, 0.02, again=0.01)
    probe_once(Counting(), 2, 0.02, again=0.01)
    probe_once(Counting(4), 1, 0.02, again=0.01)
    probe_once(Counting(identity=b"another"), 1, 0.02, again=0.01)
    monkeypatch.setattr(verdict, "_processor", lambda: "another")
    probe_once(Counting(), 1, 0.02, again=0.01)
    assert len(probed) == 5


def test_a_model_that_cannot_be_told_from_others_is_always_probed(probed: list[Engine]) -> None:
    for _ in range(2):
        probe_once(Counting(identity=b""), 1, 0.02, again=0.01)
    assert len(probed) == 2


def test_a_damaged_verdict_is_made_again(probed: list[Engine], tmp_path: Path) -> None:
    plan = probe_once(Counting(), 1, 0.05, again=0.01)
    (entry,) = (tmp_path / "cache" / "verdicts").iterdir()
    # The plan's field `limit` with a text for its number.
    entry.write_bytes(entry.read_bytes().replace(b"\xa5limit\x08", b"\xa5limit\xa0"))
    assert probe_once(Counting(), 1, 0.05, again=0.01) == plan
    assert len(probed) == 2
