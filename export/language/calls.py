"""Calls: evaluating the arguments, telling keywords from values, and entering the callee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Literal, Symbol, write
from sexpgpu.export.language.environment import Scope, Slots
from sexpgpu.export.language.signature import Signature, keyword_names, split_keywords
from sexpgpu.export.language.values import Builtin, Call, Code, Function, portray
from sexpgpu.schemas.errors import SexpgpuError, Span

if TYPE_CHECKING:
    from sexpgpu.export.language.evaluator import Evaluator

_NO_KEYWORDS: Mapping[str, Any] = {}


class CallSite:
    """A place that calls are made from: in the text, or inside a builtin (then without data).

    It remembers the last callee, with what its signature makes of the arguments' data.
    """

    __slots__ = (
        "builtin",
        "callee",
        "context",
        "data",
        "evaluator",
        "library",
        "names",
        "operator_span",
        "span",
        "split",
    )

    def __init__(
        self,
        evaluator: Evaluator,
        span: Span | None,
        data: Sequence[Datum] = (),
        operator_span: Span | None = None,
        library: str | None = None,
    ) -> None:
        self.evaluator = evaluator
        # The name that is called, where the library has a function of that name.
        self.library = library
        self.span = span
        self.data = data
        self.operator_span = operator_span or span
        self.callee: object = _NOTHING
        # The callee when it is a builtin that takes as many arguments as there are data.
        self.builtin: Any = _NOTHING
        self.context = Call(evaluator, "", span)
        self.split = len(data)
        self.names: list[str] = []

    def call(self, callee: Any, values: list[Any]) -> Any:
        """Call with the values of the data, some of which are keywords of parameters."""
        if callee is not self.callee:
            self._prepare(callee)
        if not self.names:
            return self.invoke(callee, values, _NO_KEYWORDS)
        keywords = dict(zip(self.names, values[self.split + 1 :: 2], strict=True))
        return self.invoke(callee, values[: self.split], keywords)

    def invoke(self, callee: Any, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Call with arguments that are told apart."""
        if callee is not self.callee:
            self._prepare(callee)
        if type(callee) is Builtin:
            if keywords or not callee.least <= len(positional) <= callee.most:
                self._check(callee.signature, positional, keywords)
            self.evaluator.charge(1, self.span)
            try:
                return callee.function(self.context, positional, keywords)
            except SexpgpuError as error:
                # A rule that knows nothing of programs, such as a shape's, leaves the place to us.
                error.span = error.span or self.span
                raise
        if type(callee) is Function:
            self._check(callee.signature, positional, keywords)
            frame = callee.parameters.frame(callee.frame, positional, keywords)
            return self.evaluator.enter(callee, frame, self.span)
        signature = getattr(callee, "signature", None)
        try:
            if signature is not None:
                self._check(signature, positional, keywords)
            return self.evaluator.enter_object(callee, positional, keywords, self.span)
        except SexpgpuError as error:
            if error.code in _OF_ARGUMENTS and hasattr(callee, "advise"):
                error.help = callee.advise(positional) or error.help
            raise

    def _prepare(self, callee: Any) -> None:
        """Decide for a callee which of the data are positional, and which name parameters."""
        name = self._name(callee)
        signature: Signature | None = getattr(callee, "signature", None)
        split = split_keywords(signature, self.data)
        self.names = keyword_names(self.data, split, name, self.span)
        self.split = split
        self.context = Call(
            self.evaluator,
            name,
            self.span,
            tuple([datum.span for datum in self.data[:split]]),
            {n: d.span for n, d in zip(self.names, self.data[split + 1 :: 2], strict=True)},
        )
        self.callee = callee
        fits = type(callee) is Builtin and callee.least <= len(self.data) <= callee.most
        self.builtin = callee if fits else _NOTHING

    def _name(self, callee: Any) -> str:
        if isinstance(callee, (Builtin, Function)):
            return callee.name
        if hasattr(callee, "call") and hasattr(callee, "call_name"):
            return str(callee.call_name)
        raise SexpgpuError(
            "E-CALL-001",
            "what is called is no function",
            span=self.operator_span,
            came=portray(callee),
            expected="a function or a model",
            help=self._advice(callee),
        )

    def _advice(self, callee: Any) -> str | None:
        if isinstance(callee, Keyword):
            return f"an element is taken with `(get plist :{callee.name})`"
        if self.library is not None:
            return f"here `{self.library}` is not the library's: choose another name for it"
        if callee is None or not self.data:
            return None
        return "a list of values is written `(list …)`"

    def _check(
        self, signature: Signature, positional: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        most = signature.most
        extra = None
        if most is not None and most < min(len(positional), self.split):
            extra = self.data[most].span
        written = {name: self.data[self.split + 2 * i].span for i, name in enumerate(self.names)}
        try:
            signature.check(
                self.context.name,
                len(positional),
                keywords,
                self.span,
                extra=extra,
                keyword_spans=written,
            )
        except SexpgpuError as error:
            error.help = error.help or self._misplaced(signature)
            raise

    def _misplaced(self, signature: Signature) -> str | None:
        """How to mend a call with too many arguments, where its data show what was meant."""
        for datum in self.data[: signature.least]:
            if isinstance(datum, Keyword) and datum.name in signature.keys:
                return f"`:{datum.name}` stands after the arguments that are required"
        most = signature.most
        if most is None or self.split <= most:
            return None
        last = self.data[max(most - 1, 0) : self.split]
        if most and all(isinstance(d, Literal) and type(d.value) is int for d in last):
            numbers = " ".join([write(datum) for datum in last])
            return f"several numbers are one argument as a list: `(list {numbers})`"
        keys = " or ".join([f"`:{key} …`" for key in list(signature.keys)[:3]])
        return f"options are given by keyword: {keys}" if keys else None


_NOTHING = object()
#: What is wrong with the arguments of a call, rather than with what is computed of them.
_OF_ARGUMENTS = ("E-CALL-002", "E-CALL-003", "E-TYPE-001")


def compile_call(evaluator: Evaluator, datum: ListDatum, scope: Scope) -> Code:
    """The code of a list whose first item is called."""
    operator = evaluator.compile(datum.items[0], scope)
    data = datum.items[1:]
    arguments = _compile_arguments([evaluator.compile(item, scope) for item in data])
    count, span, enter = len(data), datum.span, evaluator.enter
    head = datum.items[0]
    library = head.name if isinstance(head, Symbol) and head.name in scope.top.given else None
    site = CallSite(evaluator, span, data, head.span, library)
    call = site.call
    only_values = not any(isinstance(item, Keyword) for item in data)

    def run(frame: Slots) -> object:
        callee: Any = operator(frame)
        # Most calls are of functions with plain parameters and of builtins without keywords: their
        # arguments need no sorting.
        if type(callee) is Function:
            if callee.arity == count:
                return enter(callee, [callee.frame, *arguments(frame), *callee.spare], span)
        elif callee is site.builtin and only_values:
            evaluator.steps_left -= 1
            if evaluator.steps_left < 0:
                evaluator.out_of_steps(span)
            # The site may be used for another callee while the arguments are evaluated.
            context = site.context
            values = arguments(frame)
            try:
                return callee.function(context, values, _NO_KEYWORDS)
            except SexpgpuError as error:
                error.span = error.span or span
                raise
        return call(callee, arguments(frame))

    return run


def _compile_arguments(codes: list[Code]) -> Code:
    """The code that evaluates arguments to a list, in order.

    Short lists are written out: that is faster, and takes one Python frame less.
    """
    if not codes:
        return lambda frame: []
    if len(codes) == 1:
        (a,) = codes
        return lambda frame: [a(frame)]
    if len(codes) == 2:
        a, b = codes
        return lambda frame: [a(frame), b(frame)]
    if len(codes) == 3:
        a, b, c = codes
        return lambda frame: [a(frame), b(frame), c(frame)]
    return lambda frame: [code(frame) for code in codes]
