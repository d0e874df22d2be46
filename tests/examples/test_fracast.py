"""Fracast-0: the forecasts are those of its own package, by the same file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.real import relative_difference
from support.recognised import Recognised

torch = pytest.importorskip("torch")
package = pytest.importorskip("fracast")

pytestmark = pytest.mark.real

WINDOW = 2048


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    weights = str(fetch_model("fracast")["model.safetensors"])
    return Recognised("fracast", tmp_path_factory.mktemp("fracast"), weights=weights)


def series() -> Iterator[Array]:
    """Seasons, trends and noise, steps, one without any season, and one that is mostly missing."""
    time, noise = np.arange(WINDOW), np.random.default_rng(3).standard_normal(WINDOW)
    yield np.sin(2 * np.pi * time / 24) + 0.3 * np.sin(2 * np.pi * time / 168) + 0.05 * noise
    yield 1000 + 0.5 * time + 80 * (time % 7 < 2) + 9 * noise
    yield np.cumsum(noise)
    yield np.where(time // 50 % 2 == 0, 3.0, -1.0) + 1e-3 * noise
    yield np.where(time < WINDOW - 300, np.nan, np.cos(time / 5) * 0.01)
    holes = np.sin(2 * np.pi * time / 31)
    holes[::5] = np.nan
    yield holes


@pytest.fixture(scope="module")
def inputs() -> dict[str, Array]:
    rows = np.stack(list(series())).astype(np.float32)
    return {"inputs.0": rows, "inputs.1": np.isfinite(rows)}


@pytest.fixture(scope="module")
def forecasts(inputs: dict[str, Array]) -> Array:
    theirs: Any = package.FracastModel.from_pretrained(weights="fp32")
    return np.asarray(theirs.forecast_batch(inputs["inputs.0"]), np.float32)


def test_forecasts_equal_the_package(
    ours: Recognised, inputs: dict[str, Array], forecasts: Array, record_property: Any
) -> None:
    found = ours.run(inputs)["output"]
    differences = [relative_difference(a, b) for a, b in zip(found, forecasts, strict=True)]
    record_property("largest relative differences", differences)
    assert max(differences) < 1e-5


def test_in_bf16(ours: Recognised, inputs: dict[str, Array]) -> None:
    ours.check_bf16(inputs)
