"""Where a zip file keeps a member that is not compressed."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import BinaryIO

from sexpgpu.export.storage.weight_source import unreadable

_ENCRYPTED = 1
_LOCAL_HEADER = struct.Struct("<26xHH")
"""What stands before a member, as far as the lengths of the name and the extra field."""


def is_plain(info: zipfile.ZipInfo) -> bool:
    """Whether the member's bytes stand in the file as they are."""
    return info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & _ENCRYPTED


def member_start(file: BinaryIO, info: zipfile.ZipInfo, path: Path) -> int:
    """Where a plain member's bytes begin.  Raises E-LOAD-004."""
    file.seek(info.header_offset)
    local = file.read(_LOCAL_HEADER.size)
    if len(local) < _LOCAL_HEADER.size or local[:4] != b"PK\3\4":
        raise unreadable(path, f"member `{info.filename}` is damaged: no header stands before it")
    name_length, extra_length = _LOCAL_HEADER.unpack(local)
    return info.header_offset + len(local) + int(name_length) + int(extra_length)
