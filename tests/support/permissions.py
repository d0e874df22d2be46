"""Processes that files' permissions bind, whoever runs the tests."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile

import pytest

_LIBRARY = ctypes.CDLL(None)
_DROP_BOUND = 24  # PR_CAPBSET_DROP
_OVERRIDES = (1, 2, 3)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER


def obey_permissions() -> None:
    """In a new process before its program: root too can do no more than files allow their owner."""
    for capability in _OVERRIDES:
        _LIBRARY.prctl(_DROP_BOUND, capability, 0, 0, 0)


def _are_obeyed() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["chmod", "0", file.name], check=True)
        done = subprocess.run(
            [sys.executable, "-S", "-c", "open(__import__('sys').argv[1])", file.name],
            preexec_fn=obey_permissions,
            capture_output=True,
        )
    return done.returncode != 0


needs_permissions = pytest.mark.skipif(
    sys.platform != "linux" or not _are_obeyed(), reason="this user may write everywhere"
)
