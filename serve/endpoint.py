"""The socket's place in the file system: who may replace what, and what is left behind."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sexpgpu.schemas.errors import SexpgpuError

_PATH_LIMIT = 107
_BACKLOG = 4096
_LOCK_SECONDS = 5.0


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
        try:
            with _locked(self.path.absolute().parent) as alone:
                check_path(self.path)
                self._bind(sock, alone)
                self._identity = _identity(self.path)
        except OSError as error:
            sock.close()
            raise _cannot(self.path, error.strerror or str(error)) from None
        sock.setblocking(False)
        return sock

    def _bind(self, sock: socket.socket, alone: bool) -> None:
        """Made under another name and renamed: nobody finds a socket that does not listen yet.

        It is the same name each time, `alone` to use it, so that what a process leaves there that
        is killed in between goes with the next.
        """
        beside = self.path.with_name(f".{self.path.name}.{'new' if alone else os.getpid()}")
        if len(os.fsencode(beside)) > _PATH_LIMIT:
            beside = self.path
        _unlink_socket(beside)
        try:
            sock.bind(str(beside))
            os.chmod(beside, self.mode)
            sock.listen(_BACKLOG)
            if beside != self.path:
                os.rename(beside, self.path)
        except OSError:
            if beside != self.path:
                _unlink_socket(beside)
            raise

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
    a socket, E-SERVE-003 where it is too long, or its folder is missing or cannot be written.
    """
    if len(os.fsencode(path)) > _PATH_LIMIT:
        raise _cannot(path, f"a socket's path has at most {_PATH_LIMIT} bytes")
    folder = path.absolute().parent
    if not os.path.isdir(folder):
        raise _cannot(path, "its folder does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _cannot(path, "its folder cannot be written")
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


def _unlink_socket(path: Path) -> None:
    """Removes what nobody serves; anything but a socket stays."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            path.unlink()


def _identity(path: Path) -> tuple[int, int, int]:
    """What tells this socket from one that was made here later: an inode's number is used again."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """One process at a time looks and binds in a folder; whoever keeps it locked is not obeyed.

    Says whether it is this one alone.
    """
    alone = False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + _LOCK_SECONDS
        while not alone and time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                time.sleep(0.01)
        yield alone
    finally:
        os.close(descriptor)


def _cannot(path: Path, reason: str) -> SexpgpuError:
    return SexpgpuError("E-SERVE-003", f"no socket can be made at {path}", came=reason)
