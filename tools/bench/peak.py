"""The most memory of a part of a process's life."""

from __future__ import annotations

from pathlib import Path

_STATUS = Path("/proc/self/status")


def forget_peak() -> None:
    """From here on the peak is counted anew, where the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_bytes() -> int:
    """The most bytes that were resident at once, those of mapped files included."""
    text = _STATUS.read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024
