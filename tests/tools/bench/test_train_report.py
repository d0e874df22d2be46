"""Which ratios are computed of what was trained, and how they are written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.tools.bench.report import write_into
from sexpgpu.tools.bench.train_report import BEGIN, END, as_data, expectations, speed, tables
from sexpgpu.tools.bench.train_turns import COMPILED, EAGER, JAX, RUN, STEP, Trained


@pytest.fixture
def found() -> Trained:
    """Three rounds, of which the second is ten times as slow for all."""
    found = Trained()
    for name, step in ((JAX, 0.010), (STEP, 0.008), (RUN, 0.0125), (EAGER, 0.020)):
        found.seconds[name] = [step, 10 * step, step]
        found.first[name] = [2.0, 3.0]
        found.bytes[name] = 400 << 20
        found.losses[name] = [4.0, 3.5]
    found.unavailable[COMPILED] = "InvalidCxxCompiler: no working C++ compiler"
    return found


def _values(found: Trained) -> dict[str, tuple[float, bool]]:
    return {made.what: (round(made.value, 3), made.holds) for made in expectations("small", found)}


def test_ratios_are_of_the_same_round(found: Trained) -> None:
    assert _values(found) == {
        "steps/s of our step, of JAX's": (1.25, True),
        "steps/s of our run, of JAX's": (0.8, False),
        "steps/s of our run, of PyTorch's": (1.6, True),
        "losses of the first steps, apart, in tolerances": (0, True),
    }


def test_a_round_that_slows_one_alone_is_an_outlier(found: Trained) -> None:
    found.seconds[STEP][1] = 5.0
    assert speed(found, STEP, JAX) == pytest.approx(1.25)


@pytest.mark.parametrize("name", [JAX, STEP, RUN, EAGER])
def test_who_trains_another_model_is_found_out(found: Trained, name: str) -> None:
    found.losses[name] = [4.0, 3.5 * (1 + 3e-4)]
    value, holds = _values(found)["losses of the first steps, apart, in tolerances"]
    assert value == pytest.approx(3, rel=1e-2)
    assert not holds


def test_a_loss_that_is_nan_is_no_agreement(found: Trained) -> None:
    found.losses[STEP] = [4.0, float("nan")]
    assert not _values(found)["losses of the first steps, apart, in tolerances"][1]


def test_nothing_that_ran_is_no_agreement() -> None:
    assert _values(Trained()) == {
        "losses of the first steps, apart, in tolerances": (float("inf"), False)
    }


def test_a_ratio_without_its_other_side_is_left_out(found: Trained) -> None:
    del found.seconds[EAGER]
    assert "steps/s of our run, of PyTorch's" not in _values(found)


def test_the_tables(found: Trained, tmp_path: Path) -> None:
    text = tables(as_data({"small": found}, "cpu"))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert (
        "| our step | 125.00 | 96,000 | 1.25 | 2.5 | 400 MiB | 4.0000 … 3.5000 |" in lines
    )  # 125 steps of 12 windows of 64
    assert "| PyTorch compiled | InvalidCxxCompiler: no working C++ compiler | | | | | |" in lines
    assert "| small | steps/s of our run, of JAX's | 0.800 | ≥ 0.97 | **no** |" in lines
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nformer\n{END}\nafter\n")
    write_into(page, text, BEGIN, END)
    assert page.read_text() == f"before\n{BEGIN}\n\n{text}\n{END}\nafter\n"
