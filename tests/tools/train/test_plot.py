"""The picture of a run: it shows what was measured, is the same each time, and appears whole."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.plot import plot_metrics
from sexpgpu.tools.train.record import Record

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

TRAINING, EVALUATION, FAULT = (0x2F, 0x6D, 0xB3), (0xD9, 0x62, 0x2B), (0xC2, 0x2F, 0x2F)


def run(count: int = 30, **more: float) -> list[Record]:
    records = []
    for step in range(1, count + 1):
        values = {"loss": 3 - step / count, "learning_rate": 1e-3 / step, **more}
        records.append(Record(step, "train", step, values))
    records.append(Record(count, "evaluation", count, {"loss": 2.5}))
    return records


def drawn(records: list[Record], path: Path) -> np.ndarray:
    plot_metrics(records, path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


def has(picture: np.ndarray, colour: tuple[int, int, int]) -> bool:
    return bool((picture == colour).all(axis=-1).any())


def test_training_and_evaluation_are_seen(tmp_path: Path) -> None:
    picture = drawn(run(), tmp_path / "run.png")
    assert picture.shape[1] == 1200
    assert has(picture, TRAINING)
    assert has(picture, EVALUATION)
    assert not has(picture, FAULT)
    only = drawn([record for record in run() if record.kind == "train"], tmp_path / "train.png")
    assert not has(only, EVALUATION)


def test_each_measure_has_a_panel(tmp_path: Path) -> None:
    heights = [
        drawn(run(**{f"m{i}": 1.0 for i in range(count)}), tmp_path / "run.png").shape[0]
        for count in (0, 1, 2, 30)
    ]
    # Two stand beside each other, and of very many not all are shown.
    assert heights[0] == heights[1] < heights[2] < heights[3] < 2000


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    path = tmp_path / "run.png"
    plot_metrics(run(), path)
    first = path.read_bytes()
    assert b"Software" not in first
    # A user's own settings are another thing that may differ between machines.
    monkeypatch.setitem(mpl.rcParams, "lines.linewidth", 9.0)
    monkeypatch.setitem(mpl.rcParams, "savefig.dpi", 30)
    plot_metrics(run(), path)
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["run.png"]
    plot_metrics(run(29), path)
    assert path.read_bytes() != first


@pytest.mark.parametrize(
    "records",
    [
        [],
        run(1),
        [Record(0, "train", 0, {})],
        [Record(5, "other", 0, {"loss": 1.0})],
        [Record(step, "train", 0, {"loss": math.nan}) for step in range(200)],
        [Record(step, "train", 0, {"loss": 10.0**step}) for step in range(-300, 300, 7)],
        [Record(step, "train", 0, {"loss": 0, "count": -step}) for step in range(10_000)],
    ],
    ids=["none", "one", "nothing", "another", "nan", "wide", "zero"],
)
def test_whatever_was_measured_is_drawn(records: list[Record], tmp_path: Path) -> None:
    assert drawn(records, tmp_path / "run.png").std() > 1


def test_what_is_not_finite_is_marked(tmp_path: Path) -> None:
    records = [*run(), Record(31, "train", 31, {"loss": math.inf})]
    assert has(drawn(records, tmp_path / "run.png"), FAULT)


def test_names_are_text_and_nothing_else(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["$\\frac{", "_x_", "名前", "a\x1b[2Jb\n", "x" * 500, "$$"]
    picture = drawn(run(**dict.fromkeys(names, 1.0)), tmp_path / "run.png")
    assert picture.shape[1] == 1200
    assert not recwarn.list
    assert capfd.readouterr().err == ""


def refusal(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        plot_metrics(run(3), path)
    return caught.value


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = refusal(tmp_path / "run.png")
    assert error.code == "E-RUN-008"
    assert error.help == "pip install 'sexpgpu[train]'"


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none" / "run.png")
    assert error.code == "E-FILE-001"
    assert "No such file or directory" in error.message
    (tmp_path / "folder.png").mkdir()
    assert refusal(tmp_path / "folder.png").code == "E-FILE-001"
    assert os.listdir(tmp_path) == ["folder.png"]
