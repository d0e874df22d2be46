"""Which ratios are computed of what was measured, and how they are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.tools.bench.client import Load
from sexpgpu.tools.bench.expectations import expectations
from sexpgpu.tools.bench.models import TRANSFORMERS, Exported
from sexpgpu.tools.bench.report import BEGIN, END, as_data, tables, write_into
from sexpgpu.tools.bench.rounds import Measured


def _load(p50: float, rate: float, errors: int = 0) -> Load:
    return Load(int(rate), 1.0, p50, 2 * p50, errors)


@pytest.fixture
def found(tmp_path: Path) -> Measured:
    """Two rounds of the tiny model, the second twice as slow for all."""
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "params.safetensors").write_bytes(bytes(2048))
    found = Measured(Exported(TRANSFORMERS["tiny"], tmp_path, b"", b""))
    for slow in (1, 2):
        found.loads["in process", 1].append(_load(20 * slow, 50_000 / slow))
        found.loads["in process", 8].append(_load(80 * slow, 100_000 / slow))
        found.loads["server", 1].append(_load(50 * slow, 20_000 / slow))
        found.loads["server", 8].append(_load(100 * slow, 60_000 / slow))
        found.loads["server", 64].append(_load(900 * slow, 70_000 / slow))
        found.echo_us.append(20 * slow)
        found.crowd["alone"].append(_load(10 * slow, 1))
        found.crowd["among idle"].append(_load(11 * slow, 1))
        found.seconds["bare"].append(0.5 * slow)
        found.seconds["server"].append(0.6 * slow)
    found.bytes.update({"bare": 100 << 20, "server": 120 << 20})
    return found


def _values(found: Measured) -> dict[str, tuple[float, bool]]:
    return {made.what: (round(made.value, 3), made.holds) for made in expectations(found)}


def test_ratios_are_of_the_same_round(found: Measured) -> None:
    assert _values(found) == {
        "one client's p50 beyond the run, in echoes": (1.5, True),
        "8 clients' calls/s of the calls/s in process": (0.6, True),
        "start to first answer, of a bare script's": (1.2, True),
        "resident memory, of a bare script's": (1.2, False),
        "p99 of 100 clients among 1,000, of 100 alone": (1.1, True),
        "wrong answers and errors": (0, True),
    }


def test_a_wrong_answer_fails(found: Measured) -> None:
    found.loads["server", 8][0] = _load(1, 60_000, errors=1)
    assert _values(found)["wrong answers and errors"] == (1, False)


def test_the_best_peer_at_each_is_what_counts(found: Measured) -> None:
    for name, p50, rate in (("mosec", 400, 30_000), ("fastapi", 90, 4_000)):
        found.bytes[name] = 1 << 20
        for clients in (1, 8, 64):
            found.loads[f"server beside {name}", clients].append(_load(50, 60_000))
            found.loads[name, clients].append(_load(p50, rate))
    found.loads["mosec", 64][0] = _load(400, 30_000, errors=3)
    values = _values(found)
    assert values["wrong answers and errors"] == (0, True), "theirs are not ours"
    assert values["8 clients' calls/s, of the best peer's (mosec)"] == (2.0, False)
    assert values["one client's p50, of the best peer's (fastapi)"] == (0.556, False)


def test_memory_that_grows_fails(found: Measured) -> None:
    found.bytes.update({"server before": 1000, "server after": 1020})
    assert _values(found)["memory after many calls, of before"] == (1.02, False)


def test_the_tables(found: Measured, tmp_path: Path) -> None:
    found.unavailable["bentoml"] = "cannot be installed: no network"
    text = tables(as_data([found]))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| server | 75 / 150 | 150 / 300 | 45,000 | 52,500 | 120 MiB | 0.90 |" in lines
    assert "| in process | 30 / 60 | 120 / 240 | 75,000 | | 100 MiB | 0.75 |" in lines
    assert "| bentoml | cannot be installed: no network | | | | | |" in lines
    assert "| tiny | resident memory, of a bare script's | 1.200 | ≤ 1.1 | **no** |" in lines
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nformer\n{END}\nafter\n")
    write_into(page, text)
    written = page.read_text()
    assert written.startswith(f"before\n{BEGIN}\n\n{text}")
    assert written.endswith(f"\n{END}\nafter\n")
    assert "former" not in written
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        write_into(page, text)
