"""Places that hold files: paths, URLs that fsspec knows, and aliases of such URLs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import fsspec
from fsspec.registry import available_protocols, known_implementations

from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.storage.configuration import read_configuration
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import Readable, Writable

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_EXTRAS = {"s3": "s3", "s3a": "s3", "http": "http", "https": "http"}
_CONNECT_SECONDS = 30
_SILENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Location:
    """A directory or a file somewhere.

    `text` is how the user wrote it, and how it is shown; `filesystem` (fsspec's) and `path` say
    where it is.  What the storage itself reports comes out as E-LOC-002, except for a file that
    is not there: that is a FileNotFoundError, for the caller knows what its absence means.
    """

    text: str
    filesystem: Any = field(repr=False)
    path: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """The location that `text` names.

        Raises E-LOC-001 for a scheme that is neither fsspec's nor an alias and for an empty text,
        E-CONFIG-001 where looking for the alias finds the configuration malformed, and E-LOC-002
        where the package that reaches this kind of storage is not installed.
        """
        if not text:
            # A variable of the shell that is not set, most often: no path to the current directory.
            raise SexpgpuError(
                "E-LOC-001", "the location is empty", expected="a path, a URL, or an alias"
            )
        url = _resolve(text)
        scheme = _scheme(url)
        if scheme is None:
            return cls(text, fsspec.filesystem("file"), os.path.abspath(url))
        try:
            filesystem, path = fsspec.core.url_to_fs(url, **_options(scheme))
        except ImportError as error:
            raise _not_installed(text, scheme, error) from None
        except Exception as error:  # each storage has its own ways to refuse a URL
            raise _unreachable(text, error) from None
        return cls(text, filesystem, path)

    def __truediv__(self, name: str) -> Location:
        """The location of `name` in this directory."""
        return Location(
            f"{self.text.rstrip('/')}/{name}", self.filesystem, f"{self.path.rstrip('/')}/{name}"
        )

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def url(self) -> str:
        """The location in full, with its scheme and without aliases."""
        return str(self.filesystem.unstrip_protocol(self.path))

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine's file system, under `path`."""
        return "file" in _protocols(self.filesystem)

    @property
    def is_http(self) -> bool:
        """Whether it is on a web server, which may not list its directories."""
        return "http" in _protocols(self.filesystem)

    def names(self) -> list[str]:
        """What this directory holds, sorted; of a web server, what its page links to."""
        self.filesystem.invalidate_cache()
        directory = self.path.rstrip("/") + "/" if self.is_http else self.path
        with self._reaching():
            try:
                found = self.filesystem.ls(directory, detail=False)
            except Exception as error:
                if self.is_http and getattr(error, "status", 0) in (401, 403, 405):
                    return []  # the server is there and lists nothing
                raise
        return sorted({name.rstrip("/").rpartition("/")[2] for name in found})

    @contextmanager
    def reading(self) -> Iterator[Readable]:
        """Open the file; it can be read from its start to its end, in pieces."""
        # A web server's file is streamed: without a size fsspec would ask for it first, and take
        # every failure for an absent file.
        options = {"block_size": 0, "size": 1} if self.is_http else {}
        with self._reaching():
            file = self.filesystem.open(self.path, "rb", **options)
        try:
            yield _Guarded(file, self._reaching)
        finally:
            with self._reaching():
                file.close()

    @contextmanager
    def writing(self) -> Iterator[Writable]:
        """Open the file for writing anew; on this machine it is on the disk when this ends."""
        opener: Callable[..., Any] = open if self.is_local else self.filesystem.open
        with self._writing():
            file = opener(self.path, "wb")
        try:
            yield _Guarded(file, self._writing)
            if self.is_local:
                with self._writing():
                    file.flush()
                    os.fsync(file.fileno())
        finally:
            with self._writing():
                file.close()

    def make_directory(self) -> None:
        """Make this directory and those above it; object stores have none and need none."""
        if self.is_local:
            with self._writing():
                os.makedirs(self.path, exist_ok=True)

    def read(self, limit: int) -> bytes:
        """The whole of a file, or its first `limit` + 1 bytes."""
        content = bytearray()
        with self.reading() as file:
            while len(content) <= limit and (piece := file.read(limit + 1 - len(content))):
                content += piece
        return bytes(content)

    def exists(self) -> bool:
        """Whether a file is there, found by opening it: some storages answer nothing else."""
        try:
            with self.reading() as file:
                file.read(1)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Only the storage's own code runs in here; its exceptions have no common ancestor."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(self.path) from None
        except Exception as error:
            raise _unreachable(self.text, error) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The same, where an absent directory is the storage's fault as well."""
        try:
            yield
        except Exception as error:
            raise _unreachable(self.text, error, "written") from None


@dataclass(frozen=True, slots=True)
class _Guarded:
    """An open file whose faults are told apart from those of whoever uses it."""

    file: BinaryIO
    reaching: Callable[[], AbstractContextManager[None]]

    def read(self, size: int) -> bytes:
        with self.reaching():
            return self.file.read(size)

    def write(self, data: bytes | memoryview) -> int:
        with self.reaching():
            return self.file.write(data)


def _resolve(text: str) -> str:
    """`text` with an alias replaced by what it stands for."""
    scheme = _scheme(text)
    if scheme is None or scheme in available_protocols():
        return text
    configuration = read_configuration()
    if (target := configuration.aliases.get(scheme)) is not None:
        rest = text.partition("://")[2]
        url = f"{target.rstrip('/')}/{rest.lstrip('/')}" if rest else target
        if (_scheme(url) or "file") in available_protocols():
            return url
        scheme = str(_scheme(url))
    raise SexpgpuError(
        "E-LOC-001",
        f"the scheme `{scheme}://` is neither a storage nor an alias",
        place=text,
        expected="a path, a URL, or an alias from the configuration file",
        help=did_you_mean(scheme, [*available_protocols(), *configuration.aliases]),
        notes=[f'an alias is written in {configuration.path}: [aliases] {scheme} = "s3://…"'],
    )


def _scheme(text: str) -> str | None:
    match = _SCHEME.match(text)
    return match.group(1).lower() if match else None


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _options(scheme: str) -> dict[str, Any]:
    """Options of the storage: what is listed must be what is there now, and no download may be
    cut off because it is long."""
    if scheme in ("s3", "s3a"):
        return {"use_listings_cache": False}
    if scheme in ("http", "https"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS
        )
        return {"client_kwargs": {"timeout": timeout}}
    return {}


def _not_installed(text: str, scheme: str, error: ImportError) -> SexpgpuError:
    if (extra := _EXTRAS.get(scheme)) is not None:
        help = f"pip install 'sexpgpu[{extra}]'"
    else:
        help = str(known_implementations.get(scheme, {}).get("err", error))
    return SexpgpuError(
        "E-LOC-002",
        f"the package that reads `{scheme}://` is not installed",
        place=text,
        came=str(error),
        help=help,
    )


def _unreachable(text: str, error: Exception, done: str = "reached") -> SexpgpuError:
    reason = error.strerror if isinstance(error, OSError) else None
    return SexpgpuError(
        "E-LOC-002",
        f"the location cannot be {done}",
        place=text,
        came=reason or str(error) or type(error).__name__,
    )
