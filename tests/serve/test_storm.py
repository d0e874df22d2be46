"""The storm, short: well-behaved calls are answered rightly, and nothing of the others stays."""

from __future__ import annotations

import pytest

from sexpgpu.tools.storm import Footprint, Report, _compare, run_storm


@pytest.mark.parametrize(("clients", "width"), [(60, 64), (6, 100_000)])
def test_a_short_storm(clients: int, width: int) -> None:
    report = run_storm(clients, 5, width)
    assert not report.wrong, report.wrong[:5]
    assert len(report.done) == 8
    assert report.done["well_behaved"] >= 3


def test_what_stays_behind_is_told() -> None:
    report = Report(before=Footprint(10, 2, 50 << 20), after=Footprint(10, 2, 80 << 20))
    _compare(report, 6 << 20)
    assert report.wrong == ["the server's memory has grown by 30.0 MiB"]
    report = Report(before=Footprint(10, 2, 50 << 20), after=Footprint(11, 2, 50 << 20))
    _compare(report, 6 << 20)
    assert len(report.wrong) == 1
