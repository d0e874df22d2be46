"""Processes that files' permissions bind, whoever runs the tests."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from support.commands import launched

#: Python to run before a program: root too can then do no more than files allow their owner.
#: PR_CAPBSET_DROP of CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER.
OBEY_PERMISSIONS = (
    "import ctypes\nfor capability in 1, 2, 3: ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)"
)


def _are_obeyed() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["chmod", "0", file.name], check=True)
        done = subprocess.run(launched(["cat", file.name], OBEY_PERMISSIONS), capture_output=True)
    return done.returncode != 0


needs_permissions = pytest.mark.skipif(
    sys.platform != "linux" or not _are_obeyed(), reason="this user may write everywhere"
)
