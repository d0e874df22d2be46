"""A run's metrics as a picture."""

from __future__ import annotations

import importlib.util
import io
import math
import os
import secrets
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sexpgpu.export.language.training import LEARNING_RATE, LOSS
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.figures import number_text, printable
from sexpgpu.tools.train.record import EVALUATION, TRAIN, Record
from sexpgpu.tools.train.series import Scale, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RATES = ("records_per_second", "tokens_per_second")
_PANELS_MOST = 12
_NAME_MOST = 48
_GAPS_MOST = 50

_DOTS_PER_INCH = 120
_WIDTH, LOSS_HEIGHT, _PANEL_HEIGHT = 10.0, 4.6, 1.9

_TRAINING, _EVALUATION, _OTHER, _FAULT = "#2f6db3", "#d9622b", "#4a4a4a", "#c22f2f"
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#333333",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "text.parse_math": False,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
}


def plot_metrics(records: Sequence[Record], path: Path | str) -> None:
    """Draw what `read_metrics` gave as a PNG at `path`, which is replaced when it is whole.

    Above is the loss of training and of evaluations, below are the learning rate, the metrics and
    the records a second.  The same records give the same bytes.  Raises E-RUN-008 where matplotlib
    is not installed, E-FILE-001 where the file cannot be written.
    """
    try:
        import matplotlib as mpl
        import matplotlib.style
    except ImportError as error:
        raise _not_installed(str(error)) from None
    picture = io.BytesIO()
    # Neither the user's own settings, nor names in scripts that the font has not, change anything.
    with mpl.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _draw(records).savefig(picture, format="png", metadata={"Software": None})
    _write(Path(path), picture.getvalue())


def check_picture(path: Path) -> None:
    """Raises, before the hours that a run takes, what `plot_metrics` would raise after them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise _not_installed(None)
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise SexpgpuError(
            "E-FILE-001",
            "the picture of the metrics cannot be written there",
            place=str(path),
            came="a directory" if path.is_dir() else None,
            expected="a file in a directory that is there and may be written to",
        )


def _not_installed(came: str | None) -> SexpgpuError:
    return SexpgpuError(
        "E-RUN-008",
        "matplotlib, which draws the metrics, is not installed",
        came=came,
        help="pip install 'sexpgpu[train]'",
    )


def _draw(records: Sequence[Record]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    names = _names(records)
    shown, left_out = names[:_PANELS_MOST], len(names[_PANELS_MOST:])
    columns = 1 if len(shown) < 2 else 2
    rows = -(-len(shown) // columns)
    figure = Figure(
        figsize=(_WIDTH, LOSS_HEIGHT + rows * _PANEL_HEIGHT),
        dpi=_DOTS_PER_INCH,
        layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08),
    )
    FigureCanvasAgg(figure)
    heights = [LOSS_HEIGHT] + [_PANEL_HEIGHT] * rows
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=heights)
    top = figure.add_subplot(grid[0, :])
    _draw_loss(top, records)
    steps = [record.step for record in records]
    low, high = min(steps, default=0), max(steps, default=0)
    room = (high - low) * 0.02 or 1.0
    top.set_xlim(low - room, high + room)
    for index, name in enumerate(shown):
        axes = figure.add_subplot(grid[1 + index // columns, index % columns], sharex=top)
        _draw_panel(axes, records, name)
    if left_out:
        figure.supxlabel(f"and {left_out} more in the log", fontsize=8, color="#777777")
    return figure


def _names(records: Iterable[Record]) -> list[str]:
    """The names that have a panel of their own: the learning rate, the metrics, the rates."""
    names = dict.fromkeys(name for record in records for name in record.values)
    ends = (LOSS, LEARNING_RATE, *_RATES)
    first = [name for name in (LEARNING_RATE,) if name in names]
    last = [name for name in _RATES if name in names]
    return [*first, *(name for name in names if name not in ends), *last]


def _draw_loss(axes: Axes, records: Sequence[Record]) -> None:
    training = Series.of(records, TRAIN, LOSS)
    evaluation = Series.of(records, EVALUATION, LOSS)
    smooth = training.smoothed()
    if len(training):
        if smooth is not training:
            raw = training.thinned()
            axes.plot(raw.steps, raw.values, color=_TRAINING, alpha=0.25, linewidth=0.7)
        _draw_line(axes, smooth.thinned(), _TRAINING, f"training {_last(smooth)}")
    if len(evaluation):
        best = int(evaluation.values.argmin())
        label = f"evaluation {_last(evaluation)}"
        if best != len(evaluation) - 1:
            value, step = evaluation.values[best], evaluation.steps[best]
            label += f", lowest {number_text(float(value))} at step {int(step):,}"
        _draw_line(axes, evaluation, _EVALUATION, label, points=True)
    _draw_gaps(axes, training, evaluation)
    _fit(axes, Scale.over(training.bulk(), smooth.values, evaluation.values))
    axes.set_title("loss", fontsize=11)
    axes.set_xlabel("step")
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper right", fontsize=9)
    else:
        axes.text(0.5, 0.5, "no steps yet", transform=axes.transAxes, ha="center", color="#777777")


def _draw_panel(axes: Axes, records: Sequence[Record], name: str) -> None:
    """One measure, of training and of evaluations where both have it."""
    training = Series.of(records, TRAIN, name)
    evaluation = Series.of(records, EVALUATION, name)
    smooth = training if name == LEARNING_RATE else training.smoothed()
    if smooth is not training:
        raw = training.thinned()
        axes.plot(raw.steps, raw.values, color=_TRAINING, alpha=0.2, linewidth=0.6)
    _draw_line(axes, smooth.thinned(), _OTHER if name == LEARNING_RATE else _TRAINING)
    _draw_line(axes, evaluation, _EVALUATION, points=True)
    _draw_gaps(axes, training, evaluation)
    parts = (training.bulk(), smooth.values, evaluation.values)
    if name in (LEARNING_RATE, *_RATES):
        # How much it changes is seen against nothing at all.
        _fit(axes, Scale.over(*parts, np.zeros(1), logarithmic=False))
    else:
        _fit(axes, Scale.over(*parts))
    shown = printable(name.replace("_", " "))
    axes.set_title(shown if len(shown) <= _NAME_MOST else shown[:_NAME_MOST] + "…")


def _draw_line(
    axes: Axes, series: Series, colour: str, label: str | None = None, *, points: bool = False
) -> None:
    # A few values are seen better as points, and one is seen as nothing else.
    few = len(series) <= 40
    axes.plot(
        series.steps,
        series.values,
        color=colour,
        label=label,
        linewidth=1.6,
        marker="o" if few or (points and len(series) <= 100) else None,
        markersize=4 if few else 3,
        solid_joinstyle="round",
    )


def _draw_gaps(axes: Axes, *parts: Series) -> None:
    """A line where a value is not finite."""
    steps = sorted({float(step) for part in parts for step in part.gaps})
    for index, step in enumerate(steps[:_GAPS_MOST]):
        label = f"not finite, first at step {int(step):,}" if index == 0 else None
        axes.axvline(step, color=_FAULT, linewidth=1.5, linestyle=":", label=label)


def _fit(axes: Axes, scale: Scale) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if scale.logarithmic:
        axes.set_yscale("log")
        decades = math.log10(scale.high / scale.low)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(scale.low, scale.high)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    """A round number as short as it can be: 0.05, 12k, 3e-4."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}"
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:.6g}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _last(series: Series) -> str:
    return number_text(float(series.values[-1]))


def _write(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            beside.write_bytes(content)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SexpgpuError(
            "E-FILE-001",
            f"the picture of the metrics cannot be written: {error.strerror or error}",
            place=str(path),
        ) from None
