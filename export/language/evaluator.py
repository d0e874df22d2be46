"""Evaluating programs.

Each datum is compiled once, in the scope it stands in, to a Python closure that takes a frame and
returns the value; running the program calls closures.  What a datum means is decided by its first
item: a special form (`.forms`, and those that the evaluator is given) or a call (`.calls`).

Every program ends: calls nest to a limit, and every call, round of a loop and element that a
builtin copies takes steps from a budget.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from sexpgpu.export.language.calls import CallSite, compile_call
from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Literal, Symbol
from sexpgpu.export.language.environment import Environment, Scope, Slots
from sexpgpu.export.language.forms import FORMS
from sexpgpu.export.language.inclusion import Inclusions
from sexpgpu.export.language.parameters import Parameters, compile_parameters
from sexpgpu.export.language.reader import read_source
from sexpgpu.export.language.syntax import compile_body, malformed
from sexpgpu.export.language.values import Code, Function, portray
from sexpgpu.schemas.errors import Frame, SexpgpuError, Source, Span

#: A special form that the evaluator is given.  It stands at the top level only.
SpecialForm: TypeAlias = "Callable[[Evaluator, ListDatum, Environment], object]"

#: Steps that making a parameter, a model or a loader takes: they are larger than other values.
OBJECT_COST = 100

T = TypeVar("T")

# A Lisp call takes some ten Python frames, and brackets nest 200 deep within each; what goes
# beyond this is reported as recursion too deep, like what goes beyond `Limits.calls`.
_PYTHON_FRAMES = 60_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use."""

    calls: int = 1_000
    steps: int = 20_000_000
    elements: int = 1_000_000
    characters: int = 1_000_000


class Evaluator:
    """One evaluation of one program: its special forms, limits, and how much of them is used."""

    def __init__(
        self, special_forms: Mapping[str, SpecialForm] | None = None, limits: Limits | None = None
    ) -> None:
        self.special_forms = dict(special_forms or {})
        self.limits = limits or Limits()
        self.steps_left = self.limits.steps
        self.depth = 0
        self.inclusions = Inclusions()
        self._guarded = False
        self._codes: dict[tuple[Datum, Scope], tuple[Code, Scope]] = {}

    # Running programs

    def environment(self, base: Mapping[str, object]) -> Environment:
        """The top level of a new program that knows the names of `base`."""
        return Environment.top_level(base, self.form_names())

    def run(self, source: Source, environment: Environment) -> object:
        """Read a program and evaluate its forms in turn; the value of the last, nil for none."""
        value: object = None
        for datum in read_source(source):
            value = self.run_form(datum, environment)
        return value

    def run_file(self, path: Path, environment: Environment) -> object:
        """`run` a file and what it includes: E-INCLUDE-001 when it cannot be read."""
        return self.inclusions.load(self, path, environment, None)

    def run_form(self, datum: Datum, environment: Environment) -> object:
        """The value of a form of the top level, where names may be defined."""

        def run() -> object:
            scope = environment.scope.enter()
            code = self.compile(datum, scope, top=True)
            return code([environment.frame] + [None] * (scope.layout.size - 1))

        return self._guard(run, datum.span)

    # For special forms

    def evaluate(self, datum: Datum, environment: Environment) -> Any:
        """The value of an expression.  It is compiled the first time it stands in a scope."""

        def run() -> object:
            key = (datum, environment.scope)
            if key not in self._codes:
                inner = environment.scope.enter()
                self._codes[key] = (self.compile(datum, inner), inner)
            code, scope = self._codes[key]
            return code([environment.frame] + [None] * (scope.layout.size - 1))

        if isinstance(datum, Literal):
            return datum.value
        if not isinstance(datum, ListDatum):
            # Names are equal wherever they stand, and an error shows where: they are not kept.
            return self.compile(datum, environment.scope)(environment.frame)
        return run() if self._guarded else self._guard(run, datum.span)

    def parameters(self, datum: Datum, environment: Environment) -> Parameters:
        """A parameter list compiled in an environment; `Parameters.bind` then binds arguments."""
        return self._guard(
            lambda: compile_parameters(datum, environment.scope, self.compile), datum.span
        )

    def function(
        self, name: str, parameters: Parameters, body: Sequence[Datum], environment: Environment
    ) -> Function:
        """A function whose parameters were compiled in `environment`."""

        def run() -> Function:
            code = compile_body(self, body, parameters.scope)
            return Function(name, parameters, code, environment.frame)

        return self._guard(run, None)

    def form_names(self) -> list[str]:
        """The names of all special forms."""
        return [*FORMS, *self.special_forms]

    # For builtins

    def apply(
        self,
        callee: Any,
        positional: Sequence[object],
        keywords: Mapping[str, object] | None = None,
        span: Span | None = None,
    ) -> Any:
        """Call any value that can be called; E-CALL-001 for one that cannot.

        `span` is where the program asked for the call.
        """
        if not self._guarded:
            return self._guard(lambda: self.apply(callee, positional, keywords, span), span)
        if type(callee) is Function and callee.arity == len(positional) and not keywords:
            return self.enter(callee, [callee.frame, *positional, *callee.spare], span)
        return CallSite(self, span).invoke(callee, positional, keywords or {})

    def truth(self, value: object, span: Span | None, form: str = "if") -> bool:
        """Whether a value counts as true: all do but false and nil.  E-TENSOR-001 for a tensor."""
        if value is True:
            return True
        if value is False or value is None:
            return False
        if getattr(value, "is_tensor", False):
            raise SexpgpuError(
                "E-TENSOR-001",
                f"`{form}` needs true or false while the program is traced, and got a tensor",
                span=span,
                came=portray(value),
                help=_TENSOR_HELP.get(form, _TENSOR_HELP["if"]),
            )
        return True

    def charge(self, steps: int, span: Span | None) -> None:
        """Take steps from the budget: E-LIMIT-002 when it is used up."""
        self.steps_left -= steps
        if self.steps_left < 0:
            self.out_of_steps(span)

    def check_length(self, count: int, span: Span | None) -> None:
        """E-LIMIT-003 for a list of more elements than allowed; call it before making the list."""
        if count > self.limits.elements:
            raise SexpgpuError(
                "E-LIMIT-003",
                f"a list of {count:,} elements is too long",
                span=span,
                expected=f"at most {self.limits.elements:,}",
                help="a large array is a tensor",
            )

    # For compiled code

    def enter(self, function: Function, frame: Slots, span: Span | None) -> Any:
        """Run a function's code in a filled frame, as one call deeper."""
        depth = self.depth
        if depth >= self.limits.calls:
            self._too_many_calls(span)
        self.steps_left -= function.cost
        if self.steps_left < 0:
            self.out_of_steps(span)
        self.depth = depth + 1
        try:
            return function.code(frame)
        except SexpgpuError as error:
            error.frames.append(Frame(function.name, span))
            raise
        except RecursionError:
            raise _too_deep("the evaluation is nested too deep", span) from None
        finally:
            self.depth = depth

    def enter_object(
        self,
        callee: Any,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        span: Span | None,
    ) -> Any:
        """Call a value of a kind of its own, such as a model, as one call deeper."""
        depth = self.depth
        if depth >= self.limits.calls:
            self._too_many_calls(span)
        self.charge(1, span)
        self.depth = depth + 1
        try:
            return callee.call(self, positional, keywords, span)
        except SexpgpuError as error:
            error.span = error.span or span
            error.frames.append(Frame(callee.call_name, span))
            raise
        finally:
            self.depth = depth

    def _too_many_calls(self, span: Span | None) -> NoReturn:
        raise _too_deep(f"calls are nested more than {self.limits.calls:,} deep", span)

    def out_of_steps(self, span: Span | None) -> NoReturn:
        """Raise E-LIMIT-002."""
        raise SexpgpuError(
            "E-LIMIT-002",
            f"the program takes more than {self.limits.steps:,} steps",
            span=span,
            help="does a function call itself twice, or a loop run over a very long list?",
        )

    def compile(self, datum: Datum, scope: Scope, *, top: bool = False) -> Code:
        """The code of a datum in a scope; `top` says that it may define names."""
        if isinstance(datum, ListDatum):
            if not datum.items:
                raise SexpgpuError(
                    "E-CALL-001",
                    "an empty list calls nothing",
                    span=datum.span,
                    help="the empty list is `(list)`, and nothing is `nil`",
                )
            head = datum.items[0]
            # A local name hides no special form: their names cannot be bound.
            if isinstance(head, Symbol):
                if head.name in FORMS:
                    return FORMS[head.name](self, datum, scope, top)
                if head.name in self.special_forms:
                    return self._compile_special(head.name, datum, scope, top)
            return compile_call(self, datum, scope)
        if isinstance(datum, Symbol):
            return self._compile_name(datum, scope)
        value = datum if isinstance(datum, Keyword) else datum.value
        return lambda frame: value

    def _compile_special(self, name: str, datum: ListDatum, scope: Scope, top: bool) -> Code:
        if not top:
            raise malformed(datum, f"`{name}` stands at the top level only")
        form = self.special_forms[name]
        return lambda frame: form(self, datum, Environment(scope, frame))

    def _compile_name(self, symbol: Symbol, scope: Scope) -> Code:
        name = symbol.name
        if name in FORMS or name in self.special_forms:
            raise SexpgpuError(
                "E-FORM-001",
                f"`{name}` is a special form, and no value",
                span=symbol.span,
                help=f"it only begins a list: `({name} …)`",
            )
        found = scope.resolve(name)
        if found is None:
            return _top_level_name(symbol, scope)
        up, place = found
        if up == 0:
            return lambda frame: frame[place]
        if up == 1:
            return lambda frame: frame[0][place]
        if up == 2:
            return lambda frame: frame[0][0][place]

        def climb(frame: Slots) -> object:
            for _ in range(up):
                frame = frame[0]
            return frame[place]

        return climb

    def _guard(self, run: Callable[[], T], span: Span | None) -> T:
        """Run with room for deep evaluation in Python, and without a RecursionError coming out."""
        if self._guarded:
            return run()
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, _PYTHON_FRAMES))
        self._guarded = True
        try:
            return run()
        except RecursionError:
            raise _too_deep("the evaluation is nested too deep", span) from None
        finally:
            self._guarded = False
            sys.setrecursionlimit(before)


_TENSOR_HELP = {
    "if": "choose elementwise with `(where test a b)`; loop along an axis with `(scan f init xs)`",
    "and": "combine elementwise with `logical-and`; choose with `where`, loop with `scan`",
    "or": "combine elementwise with `logical-or`; choose with `where`, loop with `scan`",
    "not": "negate elementwise with `logical-not`; choose with `where`, loop with `scan`",
    "assert": "note a condition of training with `guard`; choose with `where`, loop with `scan`",
}


def _top_level_name(symbol: Symbol, scope: Scope) -> Code:
    values, name = scope.top.values, symbol.name

    def look(frame: Slots) -> object:
        try:
            return values[name]
        except KeyError:
            raise scope.top.undefined(symbol, scope) from None

    return look


def _too_deep(message: str, span: Span | None) -> SexpgpuError:
    return SexpgpuError(
        "E-LIMIT-001", message, span=span, help="loop over a list with `for`, `map` or `fold`"
    )
