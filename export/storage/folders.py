"""Where this user's copies of things are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_directory() -> Path:
    """`$SEXPGPU_CACHE`, or the user's cache directory for sexpgpu."""
    if named := os.environ.get("SEXPGPU_CACHE"):
        return Path(named)
    if sys.platform == "linux":
        # What platformdirs says as well; but a server that starts would load 2 MB for this line.
        base = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return Path(base) / "sexpgpu"
    import platformdirs

    return Path(platformdirs.user_cache_dir("sexpgpu"))
