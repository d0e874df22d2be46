"""What a program computes with, and how it is named and printed in messages.

Numbers, booleans, strings and nil are Python's own; a list is a tuple; a keyword or quoted symbol
is the datum itself.  Functions are made by `fn` and `defn`, builtins by Python.  Every other kind
of value (tensors, models, dtypes) is a Python class of its own that meets `Value`, and `Callable`
when it can be called.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from sexpgpu.export.graph.types import BATCH_HELP, Batch
from sexpgpu.export.language.data import Keyword, Symbol, write_literal
from sexpgpu.export.language.signature import Signature, signature_of
from sexpgpu.schemas.errors import SexpgpuError, Span

if TYPE_CHECKING:
    from sexpgpu.export.language.environment import Slots
    from sexpgpu.export.language.evaluator import Evaluator
    from sexpgpu.export.language.parameters import Parameters

#: A compiled expression: from a frame to a value.
Code: TypeAlias = "collections.abc.Callable[[Slots], Any]"


@runtime_checkable
class Value(Protocol):
    """A kind of value that the language core does not know."""

    def describe_value(self) -> str:
        """What it is, with an article: "a model"."""

    def show_value(self) -> str:
        """How it is printed; short, and not readable by the reader: `#<model gpt>`."""


@runtime_checkable
class Callable(Protocol):
    """A value that can be called as a function can.

    An attribute `signature: Signature`, where there is one, is checked before `call`, and says
    which keywords of a call name parameters.
    """

    call_name: str

    def call(
        self,
        evaluator: Evaluator,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        span: Span | None,
    ) -> object:
        """The value of a call."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a builtin: where it stands, and who evaluates it.

    The spans of arguments are there when the call is written out, and not when a function such as
    `map` makes it.
    """

    evaluator: Evaluator
    name: str
    span: Span | None
    argument_spans: tuple[Span | None, ...] = ()
    keyword_spans: Mapping[str, Span | None] | None = None

    def span_of(self, argument: int | str | None) -> Span | None:
        """The span of an argument, by position or keyword; that of the call when not known."""
        if isinstance(argument, int) and argument < len(self.argument_spans):
            return self.argument_spans[argument] or self.span
        if isinstance(argument, str) and self.keyword_spans is not None:
            return self.keyword_spans.get(argument) or self.span
        return self.span

    def error(
        self,
        code: str,
        message: str,
        argument: int | str | None = None,
        *,
        came: str | None = None,
        expected: str | None = None,
        help: str | None = None,
    ) -> SexpgpuError:
        """An error at one of the call's arguments, or at the call."""
        span = self.span_of(argument)
        return SexpgpuError(code, message, span=span, came=came, expected=expected, help=help)

    def of(self, *arguments: int) -> Call:
        """The same call of some of its arguments, in this order."""
        spans = tuple([self.span_of(argument) for argument in arguments])
        return Call(self.evaluator, self.name, self.span, spans)

    @contextmanager
    def blamed(self, argument: int | str | None) -> Iterator[None]:
        """Errors inside that say nowhere where they are, are at an argument."""
        try:
            yield
        except SexpgpuError as error:
            error.span = error.span or self.span_of(argument)
            raise

    def wrong_kind(
        self, value: object, argument: int | str | None, expected: str, help: str | None = None
    ) -> SexpgpuError:
        """E-TYPE-001: the argument is of another kind than the builtin takes.

        E-SHAPE-002 where it is the batch, which may stand for no number.
        """
        where = f" as its `:{argument}`" if isinstance(argument, str) else ""
        if isinstance(value, Batch):
            message = f"`{self.name}` would need to know the size of the batch{where}"
            return self.error(
                "E-SHAPE-002",
                message,
                argument,
                came=str(value),
                expected=expected,
                help=BATCH_HELP,
            )
        message = f"`{self.name}` cannot take {describe(value)}{where}"
        return self.error(
            "E-TYPE-001", message, argument, came=portray(value), expected=expected, help=help
        )


Implementation: TypeAlias = (
    "collections.abc.Callable[[Call, Sequence[Any], Mapping[str, Any]], object]"
)


class Builtin:
    """A function that Python defines.

    `signature` is written as a parameter list is, `(x &key (axis 0))`.  `function` gets the call,
    the positional arguments and the keyword arguments that were given: their number and names have
    been checked, what was left out is not filled in.
    """

    __slots__ = ("about", "function", "least", "most", "name", "signature")

    def __init__(
        self, name: str, signature: str, function: Implementation, about: str = ""
    ) -> None:
        self.name = name
        self.signature = signature_of(signature)
        self.function = function
        self.about = about
        self.least = self.signature.least
        # A bound that no call reaches stands for none.
        self.most = 2**31 if self.signature.most is None else self.signature.most

    def describe_value(self) -> str:
        return "a function"

    def show_value(self) -> str:
        return f"#<function {self.name}>"


class Function:
    """A function that the program defines: code, and the frame it was made in."""

    __slots__ = ("arity", "code", "cost", "frame", "name", "parameters", "spare")

    def __init__(self, name: str, parameters: Parameters, code: Code, frame: Slots) -> None:
        self.name = name
        self.parameters = parameters
        self.code = code
        self.frame = frame
        # Places for the names that the body binds, filled in as they are bound.
        self.spare = (None,) * (parameters.scope.layout.size - parameters.first_spare)
        # The number of arguments when a frame is just the arguments; -1 when binding takes more.
        self.arity = parameters.signature.least if parameters.signature.is_simple else -1
        # A call is an evaluation of itself and of a body; a large frame takes time too.
        self.cost = 2 + (len(self.spare) >> 3)

    @property
    def signature(self) -> Signature:
        """What it takes."""
        return self.parameters.signature

    def describe_value(self) -> str:
        return "a function"

    def show_value(self) -> str:
        return f"#<function {self.name}>"


def describe(value: object) -> str:
    """What kind of value it is, with an article: "a number", "a list of 3"."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if type(value) is str:
        return "a string"
    if isinstance(value, tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, Keyword):
        return "a keyword"
    if isinstance(value, Symbol):
        return "a symbol"
    return value.describe_value() if isinstance(value, Value) else f"a {type(value).__name__}"


def portray(value: object) -> str:
    """The kind of a value and its beginning: "a list of 2: (1 2)"."""
    kind = describe(value)
    shown = show(value, 60)
    # What is known of a tensor is its type, which is shown once.
    known = shown in (kind, "()", f"#<{kind.partition(' ')[2]}>")
    return kind if known else f"{kind}: {shown}"


def show(value: object, limit: int | None = None) -> str:
    """The value as text; data can be read back.  Over `limit` characters it ends in `…`.

    Lists may share parts and nest without bound, so the walk is a loop that stops at the limit.
    """
    pieces: list[str] = []
    length = 0
    fresh = True  # nothing stands before, in this list
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple):
            # One more than the limit is never shown, so it need not be looked at.
            shown = item if limit is None else item[: limit + 1]
            piece = "("
            waiting.append(_CLOSE)
            waiting.extend(reversed(shown))
        elif item is _CLOSE:
            piece = ")"
        else:
            piece = _show_atom(item)
        if piece != ")" and not fresh:
            piece = " " + piece
        fresh = isinstance(item, tuple)
        pieces.append(piece)
        length += len(piece)
        if limit is not None and length > limit:
            return "".join(pieces)[:limit] + "…"
    return "".join(pieces)


_CLOSE = object()


def _show_atom(value: object) -> str:
    if value is None or type(value) in (bool, int, float, str):
        return write_literal(value)  # type: ignore[arg-type]
    if isinstance(value, Keyword):
        return ":" + value.name
    if isinstance(value, Symbol):
        return value.name
    return value.show_value() if isinstance(value, Value) else f"#<{type(value).__name__}>"
