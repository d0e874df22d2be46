"""Removing the steps of a location, and what writers that were killed have left there."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress

from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.checkpoint import DOCUMENT
from sexpgpu.schemas.errors import SexpgpuError

#: Directories of steps that are being written, or removed, on this machine.
_BESIDE = re.compile(r"\.step-[0-9]{1,18}\.[0-9a-z]+")


def remove_step(step: Location) -> None:
    """Removes a step; killed at any moment it is there whole, or no reader takes it for one.

    Raises E-LOC-002 where it cannot be removed.
    """
    try:
        if step.is_local:
            parent, name = os.path.split(step.path)
            beside = os.path.join(parent, f".{name}.removed")
            shutil.rmtree(beside, ignore_errors=True)
            os.rename(step.path, beside)
            shutil.rmtree(beside)
            return
        # Without its document it is no step any more.
        with suppress(FileNotFoundError):
            step.filesystem.rm_file((step / DOCUMENT).path)
        step.filesystem.rm(step.path, recursive=True)
    except FileNotFoundError:
        return
    except Exception as error:  # every storage has errors of its own
        raise SexpgpuError(
            "E-LOC-002",
            "an old checkpoint cannot be removed",
            place=str(step),
            came=getattr(error, "strerror", None) or str(error) or type(error).__name__,
        ) from None


def remove_leftovers(location: Location) -> None:
    """Removes what was being written, or removed, when its writer was killed.

    Only for whoever is the location's one writer.
    """
    if not location.is_local or not os.path.isdir(location.path):
        return
    for name in os.listdir(location.path):
        if _BESIDE.fullmatch(name):
            shutil.rmtree(os.path.join(location.path, name), ignore_errors=True)
