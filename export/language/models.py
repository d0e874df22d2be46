"""Models: parameters and a function of tensors, made by `defmodel` and called like functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Symbol
from sexpgpu.export.language.environment import Environment, Scope
from sexpgpu.export.language.evaluator import OBJECT_COST, Evaluator
from sexpgpu.export.language.parameters import Parameters
from sexpgpu.export.language.plists import is_plist
from sexpgpu.export.language.signature import Signature, parse_signature
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.syntax import check_name, compile_body, definable
from sexpgpu.export.language.tensors import Parameter, Tensor
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Code, Function
from sexpgpu.schemas.errors import SexpgpuError, Span

_USAGE = "(defmodel name (parameters) (parts name value …) (apply (inputs) body …))"

PATH_LIMIT = 10_000


class ModelClass:
    """What `defmodel` defines; calling it makes a model."""

    def __init__(
        self,
        name: str,
        parameters: Parameters,
        parts: Sequence[tuple[Symbol, Datum]],
        apply: tuple[Datum, Sequence[Datum]],
        environment: Environment,
        tracer: Tracer,
    ) -> None:
        self.call_name = name
        self.parameters = parameters
        self.parts = parts
        self.apply = apply
        self.environment = environment
        self.tracer = tracer
        # Instances share their scopes, so that `apply` is compiled once.
        self._compiled: dict[Scope, tuple[Parameters, Code]] = {}

    @property
    def signature(self) -> Signature:
        return self.parameters.signature

    def advise(self, positional: Sequence[object]) -> str | None:
        """How to mend a call with arguments that the parameters cannot be."""
        if any(isinstance(value, Tensor) for value in positional):
            return f"`{self.call_name}` makes a model: call one of `parts` with the tensor"
        return None

    def call(
        self,
        evaluator: Evaluator,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        span: Span | None,
    ) -> Model:
        """A model whose parts are made in order, each seeing those before it."""
        evaluator.charge(OBJECT_COST, span)
        here = self.parameters.bind(self.environment, positional, keywords, self.call_name, span)
        parts: dict[str, object] = {}
        for symbol, datum in self.parts:
            parts[symbol.name] = evaluator.evaluate(datum, here)
            here = here.child({symbol.name: parts[symbol.name]})
        if here.scope not in self._compiled:
            inputs = evaluator.parameters(self.apply[0], here)
            code = compile_body(evaluator, self.apply[1], inputs.scope)
            self._compiled[here.scope] = (inputs, code)
        inputs, code = self._compiled[here.scope]
        function = Function(self.call_name, inputs, code, here.frame)
        return Model(self.call_name, parts, function, self.tracer)

    def describe_value(self) -> str:
        return "a kind of model"

    def show_value(self) -> str:
        return f"#<defmodel {self.call_name}>"


class Model:
    """A model: its parts by name, and the function that applies it.

    `path` is where in the root model it stands; empty for the root, and before paths are known.
    """

    def __init__(
        self, name: str, parts: Mapping[str, object], function: Function, tracer: Tracer
    ) -> None:
        self.call_name = name
        self.parts = parts
        self.function = function
        self.tracer = tracer
        self.path = ""

    @property
    def signature(self) -> Signature:
        return self.function.signature

    def call(
        self,
        evaluator: Evaluator,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        span: Span | None,
    ) -> object:
        """Applies the model."""
        function = self.function
        frame = function.parameters.frame(function.frame, positional, keywords)
        with self.tracer.within(self.path):
            return function.code(frame)

    def get_member(self, keyword: Keyword) -> object:
        """A part by its name: `(get model :w)`."""
        if keyword.name not in self.parts:
            raise SexpgpuError(
                "E-NAME-001",
                f"a `{self.call_name}` has no part `{keyword.name}`",
                help=did_you_mean(keyword.name, self.parts, ":"),
            )
        return self.parts[keyword.name]

    def describe_value(self) -> str:
        return "a model"

    def show_value(self) -> str:
        return f"#<model {self.call_name}>"


def defmodel_form(tracer: Tracer) -> Any:
    """The special form `defmodel`."""

    def defmodel(evaluator: Evaluator, datum: ListDatum, environment: Environment) -> None:
        items = datum.items
        if len(items) != 5:
            raise _malformed(datum, "`defmodel` has a name, parameters, `parts` and `apply`")
        name = definable(evaluator, items[1], datum)
        parts = _read_parts(evaluator, _clause(items[3], "parts"), items[3])
        apply = _clause(items[4], "apply")
        if len(apply) < 2:
            raise _malformed(items[4], "`apply` has inputs and a body")
        parse_signature(apply[0])
        parameters = evaluator.parameters(items[2], environment)
        made = ModelClass(name.name, parameters, parts, (apply[0], apply[1:]), environment, tracer)
        environment.define(name, made)

    return defmodel


def _read_parts(
    evaluator: Evaluator, items: Sequence[Datum], clause: Datum
) -> list[tuple[Symbol, Datum]]:
    """The names and values of `(parts name value …)`."""
    parts: dict[str, tuple[Symbol, Datum]] = {}
    for index in range(0, len(items), 2):
        name = items[index]
        if not isinstance(name, Symbol):
            raise _malformed(name, "`parts` are names and values in turn; this is no name")
        check_name(evaluator, name)
        if index + 1 == len(items):
            raise _malformed(name, f"the part `{name.name}` has no value")
        if name.name in parts:
            raise SexpgpuError(
                "E-NAME-002", f"the part `{name.name}` is named twice", span=name.span
            )
        parts[name.name] = (name, items[index + 1])
    return list(parts.values())


def _malformed(datum: Datum, message: str) -> SexpgpuError:
    return SexpgpuError("E-FORM-001", message, span=datum.span, expected=_USAGE)


def _clause(datum: Datum, name: str) -> tuple[Datum, ...]:
    """The rest of `(parts …)` or `(apply …)`."""
    fine = isinstance(datum, ListDatum) and datum.items and datum.items[0] == Symbol(name)
    if not fine:
        raise _malformed(datum, f"here stands `({name} …)`")
    assert isinstance(datum, ListDatum)
    return datum.items[1:]


def walk_parts(
    value: object, path: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, Parameter | Model]]:
    """Every parameter and model under a value with its path, each once, by the first path to it.

    `seen` holds what earlier walks have met.  The walk is a loop, since lists may nest without
    bound and share their parts; a path is written out only where something is found.  Raises
    E-LIMIT-003 for a path of more than `PATH_LIMIT` characters.
    """
    seen = set() if seen is None else seen
    waiting: list[tuple[_Place, object]] = [(_Place(None, path, len(path)), value)]
    while waiting:
        place, value = waiting.pop()
        if not isinstance(value, Parameter | Model | tuple) or id(value) in seen:
            continue
        seen.add(id(value))
        if not isinstance(value, tuple):
            yield place.path(), value
        parts = [
            (_Place(place, name, place.length + 1 + len(name)), part)
            for name, part in _parts(value)
            if isinstance(part, Parameter | Model | tuple)
        ]
        waiting.extend(reversed(parts))


class _Place(NamedTuple):
    """Where a value stands: in what, under which name, and how long its path is."""

    holder: _Place | None
    name: str
    length: int

    def path(self) -> str:
        """The names on the way, joined by dots; the root has none."""
        if self.length > PATH_LIMIT:
            raise SexpgpuError(
                "E-LIMIT-003",
                f"the path of a parameter has {self.length:,} characters",
                expected=f"at most {PATH_LIMIT:,}",
                help="are lists in `parts` nested by a loop?",
            )
        names: list[str] = []
        place: _Place | None = self
        while place is not None:
            names.append(place.name)
            place = place.holder
        return ".".join(name for name in reversed(names) if name)


def _parts(value: Parameter | Model | tuple[object, ...]) -> Iterator[tuple[str, object]]:
    """What a value holds, by name or place."""
    if isinstance(value, Model):
        yield from value.parts.items()
    elif is_plist(value):
        for key, part in zip(value[::2], value[1::2], strict=True):
            yield key.name, part
    elif isinstance(value, tuple):
        for index, part in enumerate(value):
            yield str(index), part


def assign_paths(values: Sequence[tuple[str, object]]) -> None:
    """Gives every parameter and model under these values its path; the first to reach it counts.

    Raises E-NAME-002 where two parameters would have one path.
    """
    seen: set[int] = set()
    taken: set[str] = set()
    for start, value in values:
        for path, item in walk_parts(value, start, seen):
            item.path = path
            if not isinstance(item, Parameter):
                continue
            if path in taken:
                raise SexpgpuError(
                    "E-NAME-002",
                    f"two parameters have the path `{path}`",
                    span=item.span,
                    help="parts of the model and definitions at the top level share their names: "
                    "rename one",
                )
            taken.add(path)
            item.value.name = path
