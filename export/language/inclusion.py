"""Files of programs: reading them, and including one in another.

A file that was included before is not evaluated again, so that two files may include a third.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sexpgpu.export.language.data import ListDatum, Literal, Symbol
from sexpgpu.export.language.reader import SIZE_LIMIT, decode, read_source
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError, Source, Span

if TYPE_CHECKING:
    from sexpgpu.export.language.environment import Environment
    from sexpgpu.export.language.evaluator import Evaluator

_NESTING_LIMIT = 50
_FILE_LIMIT = 1_000


class Inclusions:
    """The files that a program is made of: those being read, outermost first, and those done."""

    def __init__(self) -> None:
        self.active: list[Path] = []
        self.done: set[Path] = set()
        self.sources: list[Source] = []

    def include(
        self, evaluator: Evaluator, text: str, environment: Environment, span: Span | None
    ) -> object:
        """Evaluate the file at a path relative to the file that names it; nil when it was before.

        Errors: E-INCLUDE-001 when it cannot be read, or is being read already.
        """
        here = Path(span.source.name).parent if span is not None else Path()
        return self.load(evaluator, here / text, environment, span)

    def load(
        self, evaluator: Evaluator, path: Path, environment: Environment, span: Span | None
    ) -> object:
        """Read and evaluate a file; `span` is where it is asked for, None for the program's own."""
        try:
            identity = path.resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise _refused(path, str(error), span) from None
        if identity in self.active:
            files = [*self.active[self.active.index(identity) :], identity]
            cycle = _refused(path, "a file cannot include itself", span)
            cycle.notes.append(" includes ".join([file.name for file in files]))
            raise cycle
        if identity in self.done:
            return None
        if len(self.active) >= _NESTING_LIMIT:
            raise _refused(path, f"files include each other {_NESTING_LIMIT} deep", span)
        source = decode(_read(path, span), str(path))
        self.sources.append(source)
        self.active.append(identity)
        try:
            value = evaluator.run(source, environment)
        finally:
            self.active.pop()
        self.done.add(identity)
        return value

    def forms(self, path: Path, name: str) -> Iterator[ListDatum]:
        """The forms of this name at the top level of a file and of what it includes.

        Nothing is evaluated.  What is wrong with an included file is left to its inclusion.
        """
        waiting, seen = [(path, False)], set[Path]()
        while waiting:
            file, included = waiting.pop()
            if file.resolve() in seen or len(seen) > _FILE_LIMIT:
                continue
            seen.add(file.resolve())
            try:
                data = read_source(decode(_read(file, None), str(file)))
            except SexpgpuError:
                if included:
                    continue
                raise
            for datum in data:
                if not isinstance(datum, ListDatum) or not datum.items:
                    continue
                if datum.items[0] == Symbol(name):
                    yield datum
                if datum.items[0] == Symbol("include") and len(datum.items) == 2:
                    inner = datum.items[1]
                    if isinstance(inner, Literal) and isinstance(inner.value, str):
                        waiting.append((file.parent / inner.value, True))


def _read(path: Path, span: Span | None) -> bytes:
    """At most a byte more than a source may have, from a regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refused(path, "it is not a file", span)
        with path.open("rb") as file:
            return file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        missing = _refused(path, "there is no such file", span)
        missing.help = _near(path)
        raise missing from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refused(path, reason, span) from None


def _near(path: Path) -> str | None:
    try:
        names = [entry.name for _, entry in zip(range(1000), path.parent.iterdir(), strict=False)]
    except OSError:
        return None
    return did_you_mean(path.name, names)


def _refused(path: Path, reason: str, span: Span | None) -> SexpgpuError:
    what = "cannot be included" if span is not None else "cannot be read"
    return SexpgpuError(
        "E-INCLUDE-001" if span is not None else "E-FILE-001",
        f"`{path.name}` {what}",
        span=span,
        place=None if span is not None else str(path),
        came=reason,
    )
