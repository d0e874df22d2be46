"""The panel: what it says, and what it leaves out where there is no room."""

from __future__ import annotations

import math

import pytest

from sexpgpu.tools.train.course import Course
from sexpgpu.tools.train.panel import Panel, draw
from support.later import Clock


def panel(total: int = 5000, styled: bool = True) -> Panel:
    clock = Clock()
    course = Course(
        total=total, start=0, unit="tokens", per_step=512, title="char-gpt", clock=clock
    )
    for step in range(1, 1235):
        clock.now += 0.05
        course.reach(step)
    made = Panel(course, styled=styled)
    made.measured(1234, {"loss": 3.2141, "learning_rate": 3e-4, "accuracy": 0.25})
    made.evaluated(1100, {"loss": 3.1})
    made.evaluated(1200, {"loss": 3.3, "accuracy": 0.25})
    made.saved = 1200
    return made


def shown(panel: Panel, width: int, height: int = 24) -> list[str]:
    return [line.plain for line in draw(panel, width, height)]


def test_a_wide_terminal_shows_everything() -> None:
    way, values, events = shown(panel(), 120)
    assert way.split("━")[0] == "char-gpt  "
    assert way.split("━")[-1] == "  1,234/5,000   10.2k tok/s  3m 08s left"
    assert values == "loss 3.214   lr 3e-4   accuracy 0.2500"
    assert events == (
        "evaluation 1,200: loss 3.300   accuracy 0.2500   best 3.100 at 1,100   saved 1,200"
    )


def test_a_narrow_one_leaves_out_what_matters_least() -> None:
    made = panel()
    assert "char-gpt" not in shown(made, 57)[0]
    assert "tok/s" in shown(made, 57)[0]
    assert "tok/s" not in shown(made, 40)[0]
    assert "left" in shown(made, 40)[0]
    assert shown(made, 12)[0] == "1,234/5,000"
    assert shown(made, 12)[1:3] == ["loss 3.214", "lr 3e-4   +1"]


@pytest.mark.parametrize("height", [1, 2, 3, 24])
def test_it_fits_every_terminal(height: int) -> None:
    made = panel()
    made.measured(1235, {f"measure {i}" * (i % 4): float(i) for i in range(20)})
    for width in range(1, 130):
        lines = draw(made, width, height)
        assert len(lines) <= min(height, 5)
        assert all(line.cell_len <= width for line in lines), width
        assert all("\n" not in line.plain for line in lines)


def test_the_bar_is_as_long_as_the_run_is_far() -> None:
    made = panel(total=1234)
    assert "━" * 40 in shown(made, 120)[0]
    assert "took 1m 02s" in shown(made, 120)[0]
    bar = shown(panel(total=2468, styled=False), 120)[0].split("  ")[1]
    assert bar == "━" * 20
    assert "━" * 40 in shown(panel(total=2468), 120)[0]


def test_before_the_first_step_the_time_goes_on() -> None:
    clock = Clock()
    course = Course(total=10, start=0, unit="tokens", per_step=1, title="x", clock=clock)
    clock.now += 75
    (line,) = shown(Panel(course, styled=True), 80)
    assert line.endswith("   0/10  1m 15s")


def test_the_loss_is_averaged() -> None:
    made = panel()
    made.values = {}
    for step in range(200):
        made.measured(step, {"loss": 1.0 if step % 2 else 3.0, "accuracy": step})
    assert made.values["loss"] == pytest.approx(2, abs=0.06)
    assert made.values["accuracy"] == 199


def test_a_loss_that_is_no_number_is_seen_and_forgotten() -> None:
    made = panel()
    made.measured(1, {"loss": math.nan})
    assert shown(made, 80)[1] == "loss nan"
    assert any("red" in str(span.style) for span in draw(made, 80, 9)[1].spans)
    made.measured(2, {"loss": 3.2141})
    assert shown(made, 80)[1] == "loss 3.214"
    made.evaluated(3, {"loss": math.nan})
    assert made.best == (1100, 3.1)
