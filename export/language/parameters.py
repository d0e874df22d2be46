"""A signature compiled in a scope: from the arguments of a call to a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sexpgpu.export.language.data import Datum, ListDatum, Symbol
from sexpgpu.export.language.environment import Environment, Scope, Slots
from sexpgpu.export.language.signature import Signature, names_of, parse_signature
from sexpgpu.export.language.values import Code, portray
from sexpgpu.schemas.errors import SexpgpuError, Span

Compile = Callable[[Datum, Scope], Code]
#: Puts a value into a frame: `bind(frame, value)`.
Binder = Callable[[Slots, object], None]


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """How the frame of a function is filled from a call's arguments.

    Required arguments have the first places, in order; patterns are taken apart, and defaults
    evaluated, from left to right, so that a default may speak of the parameters before it.
    """

    signature: Signature
    scope: Scope
    #: The first place that the parameters themselves leave free.
    first_spare: int
    unpackers: tuple[tuple[int, Binder], ...]
    optional: tuple[tuple[int, Code | None], ...]
    rest: int | None
    keys: tuple[tuple[str, int, Code | None], ...]

    def frame(
        self, around: Slots, positional: Sequence[object], keywords: Mapping[str, object]
    ) -> Slots:
        """A frame for arguments that the signature has checked."""
        least = self.signature.least
        frame: Slots = [around, *positional[:least]]
        frame.extend([None] * (self.scope.layout.size - len(frame)))
        for place, unpack in self.unpackers:
            unpack(frame, frame[place])
        taken = least
        for place, default in self.optional:
            if taken < len(positional):
                frame[place] = positional[taken]
                taken += 1
            elif default is not None:
                frame[place] = default(frame)
        if self.rest is not None:
            frame[self.rest] = tuple(positional[taken:])
        for name, place, default in self.keys:
            if name in keywords:
                frame[place] = keywords[name]
            elif default is not None:
                frame[place] = default(frame)
        return frame

    def bind(
        self,
        around: Environment,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        name: str,
        span: Span | None,
    ) -> Environment:
        """The environment of a body, for a special form that calls bodies of its own.

        `around` must be of the scope that the parameters were compiled in.  Errors: E-CALL-002 and
        E-CALL-003 at `span`, and those of patterns and defaults.
        """
        self.signature.check(name, len(positional), keywords, span)
        return Environment(self.scope, self.frame(around.frame, positional, keywords))


def compile_parameters(datum: Datum, around: Scope, compile: Compile) -> Parameters:
    """The parameters that a list writes down, in a new scope inside `around`."""
    signature = parse_signature(datum)
    scope = around.enter()
    patterns: list[tuple[int, ListDatum]] = []
    for pattern in signature.required:
        if isinstance(pattern, Symbol):
            scope.add(pattern)
        elif isinstance(pattern, ListDatum):
            # The list itself has a place without a name.
            patterns.append((scope.add(Symbol("", pattern.span)), pattern))
    unpackers = tuple([(place, compile_pattern(inner, scope)) for place, inner in patterns])
    # A default sees the parameters before it, so names are added one by one.
    optional = []
    for name, default in signature.optional.items():
        code = None if default is None else compile(default, scope)
        optional.append((scope.add(Symbol(name, datum.span)), code))
    rest = None if signature.rest is None else scope.add(Symbol(signature.rest, datum.span))
    keys = []
    for name, default in signature.keys.items():
        code = None if default is None else compile(default, scope)
        keys.append((name, scope.add(Symbol(name, datum.span)), code))
    return Parameters(
        signature, scope, scope.layout.size, unpackers, tuple(optional), rest, tuple(keys)
    )


def compile_pattern(pattern: Datum, scope: Scope) -> Binder:
    """Add a pattern's names to the scope; what it returns binds them to a value.

    Errors of binding: E-TYPE-001 when a list pattern gets no list, E-VALUE-001 when the list has
    another length.
    """
    if isinstance(pattern, Symbol):
        names_of(pattern)
        place = scope.add(pattern)
        return lambda frame, value: frame.__setitem__(place, value)
    if not isinstance(pattern, ListDatum):
        names_of(pattern)  # raises
    assert isinstance(pattern, ListDatum)
    binders = tuple([compile_pattern(item, scope) for item in pattern.items])
    count, span = len(binders), pattern.span

    def unpack(frame: Slots, value: object) -> None:
        if not isinstance(value, tuple):
            raise SexpgpuError(
                "E-TYPE-001",
                "a pattern takes a list apart",
                span=span,
                came=portray(value),
                expected=f"a list of {count}",
            )
        if len(value) != count:
            raise SexpgpuError(
                "E-VALUE-001",
                f"the pattern has {count} names, the list {len(value)} elements",
                span=span,
                came=portray(value),
                expected=f"a list of {count}",
            )
        for binder, item in zip(binders, value, strict=True):
            binder(frame, item)

    return unpack
