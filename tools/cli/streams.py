"""The standard streams of a command: they may be closed, or refuse what is written."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

import click


def prepare() -> None:
    """Gives streams that were closed /dev/null, lest a file or a client be given their number.

    And has stdout write what its encoding lacks in another way, as stderr does.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def say(text: str, *, err: bool = False) -> None:
    """Writes a line on stdout or stderr, where that takes it."""
    with suppress(OSError):
        click.echo(text, err=err)


def forget_unwritten() -> str | None:
    """Drops what stdout or stderr does not take, which Python would complain of once more.

    Says which does not take it; None where both do.
    """
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
            return name
    return None
