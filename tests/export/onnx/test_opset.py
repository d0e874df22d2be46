"""Which opset a file is stamped with."""

from __future__ import annotations

import pytest

from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.onnx.opset import LEAST, NEWEST, choose_opset
from sexpgpu.schemas.errors import SexpgpuError


@pytest.mark.parametrize(("profile", "least"), LEAST.items())
def test_the_least_unless_one_is_asked_for(profile: Profile, least: int) -> None:
    assert choose_opset(profile, None) == least
    for opset in range(least, NEWEST + 1):
        assert choose_opset(profile, opset) == opset


@pytest.mark.parametrize(
    ("profile", "opset", "expected"),
    [("portable", 17, "18 to 25"), ("portable", 26, "18 to 25"), ("fused", 22, "23 to 25"),
     ("portable", 0, "18 to 25"), ("portable", -1, "18 to 25")],
)  # fmt: skip
def test_others_are_refused(profile: Profile, opset: int, expected: str) -> None:
    with pytest.raises(SexpgpuError) as caught:
        choose_opset(profile, opset)
    assert caught.value.code == "E-EXPORT-006"
    assert caught.value.expected == expected
    assert f"{profile} profile" in caught.value.message
