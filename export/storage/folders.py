"""Where this user's copies of things are kept."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """`$SEXPGPU_CACHE`, or the user's cache directory for sexpgpu."""
    if named := os.environ.get("SEXPGPU_CACHE"):
        return Path(named)
    return Path(platformdirs.user_cache_dir("sexpgpu"))
