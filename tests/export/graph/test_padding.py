"""The paddings of model.json: what is written is read back, and nothing else is read."""

from __future__ import annotations

from typing import Any

import pytest

from sexpgpu.export.graph.attributes import Malformed, read_attribute, write_attribute
from sexpgpu.export.operations.signature import Attribute, Kind

PADDING = Attribute("padding", Kind.PADDING, 0, choices=("same", "valid"))


def nothing(_: Any) -> Any:
    raise AssertionError("a padding has no body")


@pytest.mark.parametrize(
    "value", [0, 3, "same", "valid", (1, 2), ((1, 2), (3, 0)), (1, (2, 0)), ()]
)
def test_round_trip(value: Any) -> None:
    written = write_attribute(PADDING, value, nothing)
    assert not isinstance(written, tuple)
    assert read_attribute(PADDING, written, nothing) == value


@pytest.mark.parametrize(
    "data", ["full", 1.5, True, [1.5], [[1]], [[1, 2, 3]], [[1, "2"]], {}, None]
)
def test_what_is_no_padding(data: Any) -> None:
    with pytest.raises(Malformed):
        read_attribute(PADDING, data, nothing)
