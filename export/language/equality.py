"""When two values are equal: the meaning of `=` where no tensor is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexpgpu.export.graph.types import Batch
from sexpgpu.export.language.data import Keyword, Symbol
from sexpgpu.schemas.errors import Span

if TYPE_CHECKING:
    from sexpgpu.export.language.evaluator import Evaluator

_NUMBERS = (int, float)
_BY_VALUE = (str, Keyword, Symbol, Batch)


def equal(evaluator: Evaluator, first: object, second: object, span: Span | None) -> bool:
    """Whether two values are equal.

    Numbers are by value (1 equals 1.0; nan equals nothing), strings, keywords, symbols and the
    batch too, lists element by element, and everything else when it is the same thing.  The batch
    equals no number, since a model is traced once for all of them.  Lists may share parts and nest
    without bound, so the walk is a loop that takes steps.
    """
    waiting = [(first, second)]
    while waiting:
        a, b = waiting.pop()
        if isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                return False
            evaluator.charge(len(a), span)
            waiting.extend(zip(a, b, strict=True))
        elif not _equal_atoms(a, b):
            return False
    return True


def _equal_atoms(a: object, b: object) -> bool:
    if type(a) in _NUMBERS and type(b) in _NUMBERS:
        return a == b
    if type(a) is type(b) and isinstance(a, _BY_VALUE):
        return a == b
    return a is b
