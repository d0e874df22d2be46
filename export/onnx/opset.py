"""Which opset a file is stamped with: the least that its profile needs, unless one is asked for."""

from __future__ import annotations

from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.schemas.errors import SexpgpuError

#: The least opset of each profile, which is also its default.
LEAST: dict[Profile, int] = {"portable": 18, "fused": 23}
NEWEST = 25


def choose_opset(profile: Profile, wanted: int | None) -> int:
    """The opset.  Raises E-EXPORT-006 for one that the profile cannot be written in."""
    least = LEAST[profile]
    if wanted is None:
        return least
    if not least <= wanted <= NEWEST:
        raise SexpgpuError(
            "E-EXPORT-006",
            f"the {profile} profile cannot be written in opset {wanted}",
            expected=f"{least} to {NEWEST}",
        )
    return wanted
