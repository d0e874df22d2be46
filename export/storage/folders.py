"""Where this user's copies of things are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sexpgpu.schemas.errors import SexpgpuError


def cache_directory() -> Path:
    """`$SEXPGPU_CACHE`, or the user's cache directory for sexpgpu.

    Raises E-FILE-001 where there is neither, nor a home directory.
    """
    if named := os.environ.get("SEXPGPU_CACHE"):
        return Path(named)
    if sys.platform == "linux":
        # What platformdirs says as well; but a server that starts would load 2 MB for this line.
        base = os.environ.get("XDG_CACHE_HOME", "").strip()
        # By its specification, one that depends on where a command is called is no such place.
        if not os.path.isabs(base):
            base = os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            raise SexpgpuError(
                "E-FILE-001",
                "there is no home directory to keep copies in",
                help="set $SEXPGPU_CACHE to a directory with room",
            )
        return Path(base) / "sexpgpu"
    import platformdirs

    return Path(platformdirs.user_cache_dir("sexpgpu"))
