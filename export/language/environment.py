"""What names mean.

Names are resolved before a program runs.  A *scope* says at which place of which frame a local name
stands; a *frame* is a Python list that holds the values of one activation of a function, its first
element the frame around it.  A `let` needs no frame of its own: a place in a frame is filled at
most once, since only calls and the rounds of `for` repeat, and each of them has a new frame.

Names that no scope holds are those of the top level, looked up as the program runs, so that
functions may speak of what is defined further down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sexpgpu.export.language.data import Symbol
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError, Span

Slots: TypeAlias = list[Any]

#: Frames are made whole at every call, so they are kept small.
PLACE_LIMIT = 1_000

#: What other Lisps call the forms and functions of this one.
_OTHER_LISPS = {
    "begin": "do", "progn": "do", "block": "do",
    "car": "first", "head": "first", "cdr": "rest", "tail": "rest", "caddr": "nth",
    "define": "def", "defvar": "def", "defparameter": "def", "defun": "defn", "lambda": "fn",
    "let*": "let", "letrec": "let", "dolist": "for", "dotimes": "for", "loop": "for",
    "while": "fold", "reduce": "fold", "foldl": "fold", "mapcar": "map",
    "length": "len", "count": "len",
    "cons": "append", "concat-list": "concat-lists", "null": "empty?", "null?": "empty?",
    "eq": "=", "equal": "=", "eq?": "=", "equal?": "=", "==": "=", "/=": "!=", "not=": "!=",
    "modulo": "mod", "remainder": "mod", "%": "mod", "expt": "pow", "**": "pow",
    "t": "true", "None": "nil", "null-value": "nil", "string-append": "str", "import": "include",
    "load": "include", "require": "include", "when": "if", "unless": "if", "switch": "cond",
}  # fmt: skip
#: What NumPy and torch call what this library has.
_OTHER_LIBRARIES = {
    "cat": "concat", "concatenate": "concat", "hstack": "concat", "vstack": "concat",
    "view": "reshape", "expand": "broadcast-to", "swapaxes": "permute", "expand_dims": "unsqueeze",
    "arange": "iota", "clamp": "clip", "power": "pow", "absolute": "abs", "negative": "neg",
    "add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/",
    "bmm": "matmul", "mm": "matmul", "dot": "matmul", "var": "variance",
    "std": "standard-deviation",
    "gather": "take-along", "masked_fill": "where", "amax": "max",
    "amin": "min", "tril": "lower-triangle", "swish": "silu", "dense": "linear", "fft": "fourier",
    "interpolate": "resize", "normalize": "l2-normalize", "chunk": "split",
    "index_select": "take", "scatter": "scatter-set", "im2col": "unfold", "rfft": "fourier",
    "ifft": "inverse-fourier", "irfft": "inverse-fourier",
    "stft": "spectrogram", "cdist": "squared-distances", "log_prob": "normal-log-density",
    "detach": "stop-gradient", "no_grad": "stop-gradient",
}  # fmt: skip
_IMMUTABLE = ("set!", "setq", "setf", "set")


class TopLevel:
    """The names of one program: those it starts with, and its own definitions."""

    def __init__(self, base: Mapping[str, object], reserved: Iterable[str] = ()) -> None:
        self.values: dict[str, object] = dict(base)
        self.given = frozenset(base)
        self.own: dict[str, Span | None] = {}
        self.reserved = frozenset(reserved)

    def check_new(self, symbol: Symbol) -> None:
        """E-NAME-002 when the program has defined the name before.

        A name of the library may be given another meaning, once.
        """
        if symbol.name in self.own:
            earlier = self.own[symbol.name]
            raise SexpgpuError(
                "E-NAME-002",
                f"`{symbol.name}` is defined twice",
                span=symbol.span,
                help="names are immutable: choose another name",
                notes=[f"it is first defined at {earlier}"] if earlier else [],
            )

    def define(self, symbol: Symbol, value: object) -> None:
        """Add a definition; E-NAME-002 when there is one already."""
        self.check_new(symbol)
        self.values[symbol.name] = value
        self.own[symbol.name] = symbol.span

    def undefined(self, symbol: Symbol, scope: Scope | None) -> SexpgpuError:
        """The error for a name that nothing in scope has."""
        name = symbol.name
        help: str | None
        if name in _IMMUTABLE:
            help = "names are immutable: bind a new one with `let`, or loop with `fold`"
        elif name in _OTHER_LISPS:
            help = f"this language calls it `{_OTHER_LISPS[name]}`"
        elif _OTHER_LIBRARIES.get(name.replace("-", "_")) in self.values:
            help = f"this library calls it `{_OTHER_LIBRARIES[name.replace('-', '_')]}`"
        else:
            local = scope.all_names() if scope is not None else []
            help = did_you_mean(name, [*self.values, *self.reserved, *local])
        return SexpgpuError("E-NAME-001", f"`{name}` is not defined", span=symbol.span, help=help)


class Layout:
    """How many places the frames of one function have; grows while the function is compiled."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 1

    def place(self) -> int:
        """A new place."""
        self.size += 1
        return self.size - 1


class Scope:
    """Local names and their places, linked to the scope around it."""

    __slots__ = ("children", "layout", "parent", "places", "top")

    def __init__(self, top: TopLevel, layout: Layout, parent: Scope | None) -> None:
        self.top = top
        self.layout = layout
        self.parent = parent
        self.places: dict[str, int] = {}
        self.children: dict[tuple[str, ...], Scope] = {}

    def nest(self) -> Scope:
        """An empty scope in the same frame."""
        return Scope(self.top, self.layout, self)

    def enter(self) -> Scope:
        """An empty scope with a frame of its own."""
        return Scope(self.top, Layout(), self)

    def add(self, symbol: Symbol) -> int:
        """Bind a name from here on; it hides an equal one.  Returns its place.

        What was compiled before keeps the meaning that it found.
        """
        if self.layout.size > PLACE_LIMIT:
            raise SexpgpuError(
                "E-FORM-001",
                f"a function has more than {PLACE_LIMIT:,} local names",
                span=symbol.span,
                help="keep values in a list, or part the function",
            )
        place = self.layout.place()
        self.places[symbol.name] = place
        return place

    def child(self, names: tuple[str, ...]) -> Scope:
        """A scope with a frame of these names, the same for the same names.

        What is compiled in it can therefore be kept and used again.
        """
        if names not in self.children:
            child = self.children[names] = self.enter()
            for name in names:
                child.add(Symbol(name))
        return self.children[names]

    def resolve(self, name: str) -> tuple[int, int] | None:
        """How many frames up a name stands, and its place there; None for no local name."""
        up = 0
        scope: Scope | None = self
        while scope is not None:
            place = scope.places.get(name)
            if place is not None:
                return up, place
            if scope.parent is not None and scope.parent.layout is not scope.layout:
                up += 1
            scope = scope.parent
        return None

    def all_names(self) -> list[str]:
        """Every local name in scope."""
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            names.extend(scope.places)
            scope = scope.parent
        return names


class Environment:
    """A scope with the values that its names have now: what a special form is given."""

    __slots__ = ("frame", "scope")

    def __init__(self, scope: Scope, frame: Slots) -> None:
        self.scope = scope
        self.frame = frame

    @classmethod
    def top_level(cls, base: Mapping[str, object], reserved: Iterable[str] = ()) -> Environment:
        """A new program that knows the names of `base`.

        `reserved` are the names of special forms, for suggestions alone.
        """
        return cls(Scope(TopLevel(base, reserved), Layout(), None), [None])

    @property
    def top(self) -> TopLevel:
        """The top level that the environment stands in."""
        return self.scope.top

    def child(self, bindings: Mapping[str, object]) -> Environment:
        """The environment with more names; it hides those it has already."""
        scope = self.scope.child(tuple(bindings))
        return Environment(scope, [self.frame, *bindings.values()])

    def define(self, symbol: Symbol, value: object) -> None:
        """Define a name of the top level; E-NAME-002 when the program has it already."""
        self.top.define(symbol, value)

    def lookup(self, symbol: Symbol) -> object:
        """The value of a name; E-NAME-001 when it has none."""
        found = self.scope.resolve(symbol.name)
        if found is None:
            if symbol.name in self.top.values:
                return self.top.values[symbol.name]
            raise self.top.undefined(symbol, self.scope)
        up, place = found
        frame = self.frame
        for _ in range(up):
            frame = frame[0]
        return frame[place]
