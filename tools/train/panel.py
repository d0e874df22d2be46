"""The panel of the live display: what stands in its lines, and how they are fitted to a width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.text import Text

from sexpgpu.tools.train.course import Course
from sexpgpu.tools.train.figures import duration_text, labelled, number_text
from sexpgpu.tools.train.scalars import Number

_LOSS = "loss"
_KEPT = 0.95
_BAR_LEAST, _BAR_MOST = 8, 40
_GAP = "   "
_LINES_EACH = 2
_NO_NUMBERS = ("nan", "inf", "-inf")


class Panel:
    """What is known of a run, and shown."""

    def __init__(self, course: Course, *, styled: bool) -> None:
        self.course = course
        self.styled = styled
        self.values: dict[str, Number] = {}
        self.evaluation: tuple[int, Mapping[str, Number]] | None = None
        self.best: tuple[int, Number] | None = None
        self.saved: int | None = None
        self.over = False
        self._smooth = 0.0
        self._weight = 0.0

    def measured(self, step: int, values: Mapping[str, Number]) -> None:
        """The values of a step; its loss is averaged with those before."""
        self.values = dict(values)
        loss = values.get(_LOSS)
        # One that is no number is shown as it is, and does not spoil those after it.
        if loss is not None and math.isfinite(loss):
            self._smooth = _KEPT * self._smooth + (1 - _KEPT) * loss
            self._weight = _KEPT * self._weight + (1 - _KEPT)
            self.values[_LOSS] = self._smooth / self._weight

    def evaluated(self, step: int, values: Mapping[str, Number]) -> None:
        """The values of an evaluation; the lowest loss is remembered."""
        self.evaluation = (step, values)
        loss = values.get(_LOSS, math.nan)
        if math.isfinite(loss) and (self.best is None or loss < self.best[1]):
            self.best = (step, loss)


def draw(panel: Panel, width: int, height: int) -> list[Text]:
    """The panel's lines: none is wider than `width`, and as many as `height` at most."""
    lines = [_way(panel, width)]
    lines += _flow(_values(panel.values), width, _LINES_EACH)
    lines += _flow(_events(panel), width, _LINES_EACH)
    return lines[: max(1, height)]


def _way(panel: Panel, width: int) -> Text:
    """`gpt  ━━━━━━━╸━━━━━  1,234/5,000  12.3k tok/s  1m 20s left`, what matters least left out."""
    course = panel.course
    total = f"{course.total:,}"
    # In the order in which they are left out.
    fields = {
        "title": Text(course.title, "bold"),
        "speed": Text(f"{course.speed:>12}" if course.speed else "", "cyan"),
        "left": Text(course.left or duration_text(course.seconds), "cyan"),
        "step": Text(f"{course.at:>{len(total)},}/{total}"),
    }
    fields = {name: field for name, field in fields.items() if field}

    def room() -> int:
        return width - sum(field.cell_len + 2 for field in fields.values())

    while room() < _BAR_LEAST and len(fields) > 1:
        del fields[next(iter(fields))]
    bar = _bar(panel, min(room(), _BAR_MOST)) if room() >= _BAR_LEAST else None
    order = (fields.get("title"), bar, fields["step"], fields.get("speed"), fields.get("left"))
    line = Text("  ").join(part for part in order if part is not None)
    line.truncate(width, overflow="ellipsis")
    return line


def _bar(panel: Panel, width: int) -> Text:
    course = panel.course
    halves = 2 * width * min(course.at, course.total) // max(course.total, 1)
    whole, half = divmod(halves, 2)
    done = "━" * whole + "╸" * half
    # Without colours the rest is told from what is done by being empty.
    rest = ("━" if panel.styled else " ") * (width - len(done))
    colour = "green" if course.at >= course.total else "yellow" if panel.over else "cyan"
    return Text.assemble((done, colour), (rest, "bright_black"))


def _values(values: Mapping[str, Number]) -> list[Text]:
    return [
        Text.assemble((f"{label} ", "dim"), (text, "bold red" if text in _NO_NUMBERS else "bold"))
        for label, text in labelled(values)
    ]


def _events(panel: Panel) -> list[Text]:
    """The last evaluation, the best one if it was another, and the last checkpoint."""
    events = []
    if panel.evaluation is not None:
        step, values = panel.evaluation
        shown = _GAP.join(f"{label} {text}" for label, text in labelled(values))
        events.append(Text.assemble((f"evaluation {step:,}: ", "dim"), shown))
    if panel.best is not None and panel.evaluation and panel.evaluation[0] != panel.best[0]:
        step, loss = panel.best
        events.append(Text.assemble(("best ", "dim"), f"{number_text(loss)} at {step:,}"))
    if panel.saved is not None:
        events.append(Text.assemble(("saved ", "dim"), f"{panel.saved:,}"))
    return events


def _flow(fields: Sequence[Text], width: int, most: int) -> list[Text]:
    """The fields in turn, in `most` lines at most; those that find no room are counted."""
    lines: list[Text] = []
    for index, field in enumerate(fields):
        if lines and lines[-1].cell_len + len(_GAP) + field.cell_len <= width:
            lines[-1] = Text(_GAP).join((lines[-1], field))
        elif len(lines) < most:
            lines.append(field.copy())
        else:
            rest = Text(f"{_GAP}+{len(fields) - index}", "dim")
            lines[-1].truncate(max(0, width - rest.cell_len), overflow="ellipsis")
            lines[-1].append_text(rest)
            break
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines
