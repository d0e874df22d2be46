"""Bad values are found before a run, and only they."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sexpgpu.serve.checks import CallChecks
from sexpgpu.serve.engine import Buffers, Engine
from sexpgpu.serve.hosted import Limits
from sexpgpu.serve.session import open_session
from support.hosting import CPU
from support.serving import declare, onnx_hosted


def bad_calls(dtype: str, records: Sequence[Any], limits: dict[str, Limits]) -> dict[int, str]:
    inputs = {"x": (dtype, [2]), "other": ("f32", [3])}
    body = "y = Identity (x)"
    hosted = onnx_hosted(declare(inputs), declare({"y": (dtype, [2])}), body, limits)
    buffers: Buffers = Engine(open_session(hosted, CPU, 1), hosted, len(records)).buffers
    buffers.inputs[1].records(len(records))[:] = np.nan
    for row, record in enumerate(records):
        kind = np.uint8 if dtype == "bool" else hosted.inputs[0].dtype.numpy
        buffers.inputs[0].row(row)[:] = np.asarray(record, kind).tobytes()
    return CallChecks(hosted).bad_calls(buffers, len(records))


def test_a_bool_is_0_or_1() -> None:
    assert bad_calls("bool", [[0, 1], [1, 7], [0, 0], [255, 2]], {}) == {
        1: "`x`: a bool is 0 or 1, 7 came",
        3: "`x`: a bool is 0 or 1, 255 came",
    }


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_an_index_is_inside_its_limits(dtype: str) -> None:
    records = [[0, 4], [5, 0], [-1, -5], [0, -6], [4, 4], [2**31 - 1, 0], [-(2**31), 0]]
    assert bad_calls(dtype, records, {"x": Limits(-5, 5)}) == {
        1: "`x`: 5 is outside 0 to 4",
        3: "`x`: -6 is outside 0 to 4",
        5: "`x`: 2147483647 is outside 0 to 4",
        6: "`x`: -2147483648 is outside 0 to 4",
    }


def test_each_element_has_limits_of_its_own() -> None:
    records = [[4, 99], [5, 0], [0, 100], [-5, -100], [-6, 0]]
    assert bad_calls("i32", records, {"x": Limits(-5, 5, (5, 100))}) == {
        1: "`x`: 5 is outside 0 to 4",
        2: "`x`: 100 is outside 0 to 99",
        4: "`x`: -6 is outside 0 to 4",
    }
    assert list(
        bad_calls("i64", [[2**63 - 1, 4], [-(2**63), 5]], {"x": Limits(-5, 5, (0, 5))})
    ) == [1]


def test_a_position_is_not_negative() -> None:
    assert list(bad_calls("i32", [[0, 1], [-1, 0]], {"x": Limits(0, 2)})) == [1]


def test_numbers_without_limits_are_not_looked_at() -> None:
    assert bad_calls("i64", [[-(2**63), 2**63 - 1]], {}) == {}
    assert bad_calls("f32", [[np.nan, np.inf]], {}) == {}
