"""Models: parameters and a function of tensors, made by `defmodel` and called like functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.language.data import Datum, Keyword, ListDatum, Symbol
from sexpgpu.export.language.environment import Environment, Scope
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.initializers import INITIALIZERS
from sexpgpu.export.language.parameters import Parameters
from sexpgpu.export.language.signature import Signature
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.syntax import compile_body
from sexpgpu.export.language.tensors import Initializer, Parameter
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin, Call, Code, Function
from sexpgpu.schemas.errors import SexpgpuError, Span

_USAGE = "(defmodel name (parameters) (parts name value …) (apply (inputs) body …))"
PARAMETER_LIMIT = 2**38


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

    def call(
        self,
        evaluator: Evaluator,
        positional: Sequence[object],
        keywords: Mapping[str, object],
        span: Span | None,
    ) -> Model:
        """A model whose parts are made in order, each seeing those before it."""
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
        if len(items) != 5 or not isinstance(items[1], Symbol):
            raise _malformed(datum, "`defmodel` has a name, parameters, `parts` and `apply`")
        name = items[1]
        parts = _clause(items[3], "parts")
        apply = _clause(items[4], "apply")
        if len(parts) % 2 or not all(isinstance(part, Symbol) for part in parts[::2]):
            raise _malformed(items[3], "`parts` are names and values in turn")
        if len(apply) < 2:
            raise _malformed(items[4], "`apply` has inputs and a body")
        named = [(p, v) for p, v in zip(parts[::2], parts[1::2], strict=True)]
        seen: set[str] = set()
        for symbol, _ in named:
            assert isinstance(symbol, Symbol)
            if symbol.name in seen:
                raise SexpgpuError(
                    "E-NAME-002", f"the part `{symbol.name}` is named twice", span=symbol.span
                )
            seen.add(symbol.name)
        environment.define(
            name,
            ModelClass(
                name.name,
                evaluator.parameters(items[2], environment),
                named,  # type: ignore[arg-type]
                (apply[0], apply[1:]),
                environment,
                tracer,
            ),
        )

    return defmodel


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
    bound and share their parts.
    """
    seen = set() if seen is None else seen
    waiting: list[tuple[str, object]] = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        if not isinstance(value, Parameter | Model | tuple) or id(value) in seen:
            continue
        seen.add(id(value))
        if not isinstance(value, tuple):
            yield path, value
        parts = [(f"{path}.{name}" if path else name, part) for name, part in _parts(value)]
        waiting.extend(reversed(parts))


def _parts(value: Parameter | Model | tuple[object, ...]) -> Iterator[tuple[str, object]]:
    """What a value holds, by name or place."""
    if isinstance(value, Model):
        yield from value.parts.items()
    elif isinstance(value, tuple):
        keys = value[::2]
        if value and not len(value) % 2 and all(isinstance(key, Keyword) for key in keys):
            for key, part in zip(keys, value[1::2], strict=True):
                assert isinstance(key, Keyword)
                yield key.name, part
        else:
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
                    help="parts of the model and definitions at the top level share their names: "
                    "rename one",
                )
            taken.add(path)
            item.value.name = path


def parameter_builtins() -> list[Builtin]:
    """`param`, and the initializers it takes."""
    return [
        Builtin(
            "param",
            "(shape &key (dtype f32) init load key (frozen false))",
            _param,
            "a parameter of a model",
        ),
        *(_initializer(name, *described) for name, described in INITIALIZERS.items()),
    ]


def _initializer(name: str, signature: str, about: str) -> Builtin:
    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Initializer:
        for index, number in enumerate(positional):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise call.wrong_kind(number, index, "a number")
        return Initializer(name, tuple(float(number) for number in positional))

    return Builtin(name, signature, make, f"an initializer: {about}")


def _param(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Parameter:
    shape = positional[0] if isinstance(positional[0], tuple) else (positional[0],)
    for size in shape:
        if isinstance(size, Batch):
            raise call.error(
                "E-SHAPE-002",
                "a parameter cannot be as long as the batch",
                0,
                help="parameters are the same for every record",
            )
        if isinstance(size, bool) or not isinstance(size, int):
            raise call.wrong_kind(size, 0, "a list of whole numbers")
        if size < 0:
            raise call.error("E-VALUE-001", "a size is not negative", 0, came=str(size))
    count = 1
    for size in shape:
        count *= size
    if count > PARAMETER_LIMIT:
        raise call.error(
            "E-SHAPE-003",
            f"a parameter of {count:,} elements",
            0,
            expected=f"at most {PARAMETER_LIMIT:,}",
        )
    dtype = keywords.get("dtype", DType.F32)
    if not isinstance(dtype, DType):
        raise call.wrong_kind(dtype, "dtype", "a dtype")
    init = keywords.get("init")
    if init is None:
        init = Initializer("normal", (0.02,))
    if not isinstance(init, Initializer):
        raise call.wrong_kind(
            init, "init", "an initializer: " + ", ".join(f"({name})" for name in INITIALIZERS)
        )
    load, key, frozen = keywords.get("load"), keywords.get("key"), keywords.get("frozen", False)
    for name, value in (("load", load), ("key", key)):
        if value is not None and not isinstance(value, str):
            raise call.wrong_kind(value, name, "a string")
    if not isinstance(frozen, bool):
        raise call.wrong_kind(frozen, "frozen", "true or false")
    if key is not None and load is None:
        raise call.error("E-VALUE-001", "`:key` is the key of a `:load` file", "key")
    return Parameter(TensorType(dtype, shape), init, load=load, key=key, frozen=frozen)
