"""Series: what is drawn of a measure is what it was, less its noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sexpgpu.tools.train.record import Record
from sexpgpu.tools.train.series import Floats, Scale, Series


def series(values: Floats) -> Series:
    return Series(np.arange(len(values), dtype=float) * 10, values, np.empty(0))


def test_a_series_is_of_one_kind_and_name() -> None:
    records = [
        Record(1, "train", 0, {"loss": 3.0, "rate": 1}),
        Record(2, "train", 0, {"loss": math.nan}),
        Record(2, "evaluation", 0, {"loss": 7.0}),
        Record(3, "train", 0, {"rate": 2}),
        Record(4, "train", 0, {"loss": 1e300}),
        Record(5, "train", 0, {"loss": 2}),
    ]
    found = Series.of(records, "train", "loss")
    assert found.steps.tolist() == [1, 5]
    assert found.values.tolist() == [3.0, 2.0]
    assert found.gaps.tolist() == [2, 4]
    assert len(Series.of(records, "train", "none")) == 0


@pytest.mark.parametrize("count", [1, 79, 80, 81, 1000, 100_000])
def test_a_line_stays_where_it_is_to_its_ends(count: int) -> None:
    line = 5 - np.arange(count) / 1000
    smooth = series(line).smoothed()
    np.testing.assert_allclose(smooth.values, line, atol=1e-9)
    assert smooth.steps.tolist() == series(line).steps.tolist()


def test_noise_is_averaged() -> None:
    noise = np.random.default_rng(3).normal(2.0, 1.0, 8000)
    smooth = series(noise).smoothed().values
    assert np.std(smooth[200:-200]) < 0.1
    assert np.abs(smooth - 2).max() < 0.6


def test_in_the_middle_it_is_a_mean_of_neighbours() -> None:
    values = np.zeros(800)
    values[400] = 21.0
    smooth = series(values).smoothed().values
    np.testing.assert_allclose(smooth[390:411], 1.0)
    np.testing.assert_allclose(smooth[30:390], 0.0, atol=1e-12)


def test_thinning_keeps_what_stands_out() -> None:
    values = np.zeros(100_000)
    values[54_321], values[77_777] = 5.0, -3.0
    thin = series(values).thinned()
    assert len(thin) == 4000
    assert (thin.values.max(), thin.values.min()) == (5.0, -3.0)
    assert np.all(np.diff(thin.steps) >= 0)
    assert abs(thin.steps[thin.values.argmax()] - 543_210) <= 500
    short = series(np.zeros(4000))
    assert short.thinned() is short


def test_a_few_that_stand_far_out_do_not_make_the_scale() -> None:
    values = np.linspace(1, 2, 1000)
    values[500] = 1e6
    assert series(values).bulk().max() < 2.1
    assert series(values[495:505]).bulk().max() == 1e6


def test_a_scale_is_logarithmic_where_that_helps() -> None:
    falling = 5 * np.exp(-np.linspace(0, 6, 100))
    rising = 1 - 0.99 * np.exp(-np.linspace(0, 6, 100))
    assert Scale.over(falling).logarithmic
    assert not Scale.over(falling, logarithmic=False).logarithmic
    assert not Scale.over(falling - 0.1).logarithmic
    assert not Scale.over(rising).logarithmic
    assert not Scale.over(falling + 1).logarithmic


@pytest.mark.parametrize(
    "values", [[], [0.0], [3.0], [-3.0, -3.0], [1e-320, 1e99], [-1e99, 1e99], [1e-3, 1e-3, 1.0]]
)
def test_a_scale_has_room_around_every_value(values: list[float]) -> None:
    scale = Scale.over(np.asarray(values), np.empty(0))
    assert math.isfinite(scale.low)
    assert math.isfinite(scale.high)
    assert scale.low < scale.high
    assert all(value < scale.high for value in values)
    if scale.logarithmic:
        assert scale.low > 0
    else:
        assert all(scale.low < value for value in values)
