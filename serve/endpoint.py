"""The socket's place in the file system: who may replace what, and what is left behind."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sexpgpu.schemas.errors import SexpgpuError

_PATH_LIMIT = 107
_BACKLOG = 4096
_LOCK_SECONDS = 2.0


class Endpoint:
    """A listening Unix socket at a path, removed again when it is closed."""

    def __init__(self, path: Path, mode: int) -> None:
        self.path = path
        self.mode = mode
        self._identity: tuple[int, int, int] | None = None
        check_path(path)

    def listen(self) -> socket.socket:
        """Binds and listens; from here on clients can connect.

        Raises what `check_path` raises, E-SERVE-003 where the socket cannot be made.
        """
        sock = socket.socket(socket.AF_UNIX)
        # Made under another name and renamed: nobody finds a socket that does not listen yet.
        beside = self.path.with_name(f".{os.getpid()}.sock")
        if len(os.fsencode(beside)) > _PATH_LIMIT:
            beside = self.path
        try:
            with _locked(self.path.absolute().parent):
                check_path(self.path)
                # A process of this number may have been killed before it renamed its own.
                beside.unlink(missing_ok=True)
                sock.bind(str(beside))
                os.chmod(beside, self.mode)
                sock.listen(_BACKLOG)
                if beside != self.path:
                    os.rename(beside, self.path)
                self._identity = _identity(self.path)
        except OSError as error:
            sock.close()
            if beside != self.path:
                beside.unlink(missing_ok=True)
            raise _cannot(self.path, error.strerror or str(error)) from None
        sock.setblocking(False)
        return sock

    def remove(self) -> None:
        """Removes the socket, unless another has taken its place."""
        try:
            if self._identity is not None and _identity(self.path) == self._identity:
                self.path.unlink()
        except OSError:
            return


def check_path(path: Path) -> None:
    """Whether a socket may be made here.

    Raises E-SERVE-001 where another process serves, E-SERVE-002 where the path holds anything but
    a socket, E-SERVE-003 where it is too long or its folder is missing.
    """
    if len(os.fsencode(path)) > _PATH_LIMIT:
        raise _cannot(path, f"a socket's path has at most {_PATH_LIMIT} bytes")
    if not path.absolute().parent.is_dir():
        raise _cannot(path, "its folder does not exist")
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot(path, error.strerror or str(error)) from None
    if not stat.S_ISSOCK(kind):
        raise SexpgpuError(
            "E-SERVE-002",
            f"{path} holds something that is no socket",
            help="it is left as it is: choose another path",
        )
    if _answers(path):
        raise SexpgpuError(
            "E-SERVE-001",
            f"another process serves {path}",
            help="stop it, or choose another path",
        )


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            # Its queue is full: it is busy, and there.
            return True
        except OSError:
            return False
        return True


def _identity(path: Path) -> tuple[int, int, int]:
    """What tells this socket from one that was made here later: an inode's number is used again."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time looks and binds in a folder; whoever keeps it locked is not obeyed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _cannot(path: Path, reason: str) -> SexpgpuError:
    return SexpgpuError("E-SERVE-003", f"no socket can be made at {path}", came=reason)
