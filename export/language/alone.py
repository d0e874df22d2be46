"""The model alone: traced for any number of records, as its evaluation runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.graph import Graph, Value, reachable
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.plists import is_plist
from sexpgpu.export.language.program import Program
from sexpgpu.export.language.signature import keyword_names, split_keywords
from sexpgpu.export.language.suggestion import misnamed
from sexpgpu.export.language.tensors import Parameter, Tensor, Weight
from sexpgpu.export.language.values import describe, portray
from sexpgpu.schemas.errors import SexpgpuError

#: A model's inputs, and the values of a prediction, are at most so many.  Lists may share their
#: parts, so that a short program writes down more than could ever be walked through.
VALUE_LIMIT = 10_000


@dataclass
class Alone:
    """A traced model: its graph, and the parameters that it reads, by path."""

    graph: Graph
    parameters: dict[str, Parameter]


def trace_alone(program: Program) -> Alone:
    """The graph of `model`, applied to what `eval-prepare` or `prepare` makes of one record.

    Raises E-INFER-001 where the prediction holds what is no tensor.
    """
    prepared = prepare(program, "eval-prepare")
    with program.tracer.mode(training=False):
        arguments, inputs = _as_inputs(inputs_of(program, prepared, "eval-prepare"))
        prediction = apply_model(program, arguments)
    outputs: dict[str, Value] = {}
    for name, leaf in flatten_prediction(prediction):
        if name in outputs:
            raise SexpgpuError("E-INFER-001", f"two tensors of the prediction are called `{name}`")
        outputs[name] = leaf.value
    if not outputs:
        raise SexpgpuError(
            "E-INFER-001",
            "a model run alone returns tensors, and there is none in its prediction",
            came=describe(prediction),
        )
    return _close(inputs, outputs, program)


def try_alone(program: Program) -> tuple[Alone | None, SexpgpuError | None]:
    """The model alone, or the E-INFER error that says why it cannot run so.

    Raises whatever else is wrong with it.
    """
    try:
        return trace_alone(program), None
    except SexpgpuError as error:
        if not error.code.startswith("E-INFER"):
            raise
        return None, error


def record_fields(program: Program) -> dict[str, Tensor]:
    """A batch of the loader's records.  Raises E-MODEL-003 where nothing says what a record is."""
    loader = program.records()
    if loader is None:
        raise SexpgpuError(
            "E-MODEL-003",
            f"{program.path} says nowhere what a record is",
            expected="a loader in `defrun`, or (def record (fields :tokens (list i32 16)))",
        )
    return {name: Tensor(Value(type, name=name)) for name, type in loader.fields.items()}


def prepare(program: Program, *names: str, fields: Mapping[str, Tensor] | None = None) -> Any:
    """What the first of these functions, or `prepare`, makes of a batch of records.

    Without any of them every field is an input, and stands beside `:inputs` under its name.  What
    it computes is no part of the model, so it may draw random numbers.  Raises what `record_fields`
    raises, where they are not given.
    """
    if fields is None:
        fields = record_fields(program)
    with program.tracer.mode(training=True):
        preparing = _preparing(program, *names)
        record = [item for name, field in fields.items() for item in (Keyword(name), field)]
        if preparing is None:
            tensors = tuple(fields.values())
            inputs = tensors if len(tensors) > 1 else tensors[0]
            return (Keyword("inputs"), inputs, *record)
        return program.call(preparing, [tuple(record)])


def inputs_of(program: Program, prepared: object, *names: str) -> object:
    """`:inputs` of what `prepare` returned.  Raises E-MODEL-003 where it is not there."""
    keys: list[str] = []
    if is_plist(prepared):
        for key, value in zip(prepared[::2], prepared[1::2], strict=True):
            if key.name == "inputs":
                return value
            keys.append(key.name)
    name = _preparing(program, *names)
    raise SexpgpuError(
        "E-MODEL-003",
        f"`{name}` returns a plist with `:inputs`",
        span=program.span_of(name),
        came=portray(prepared),
        expected="(list :inputs x …)",
        help=misnamed("inputs", keys, ":"),
    )


def apply_model(program: Program, arguments: list[object]) -> object:
    """The prediction: the model called with these, of which keywords may name parameters."""
    signature = getattr(program.model, "signature", None)
    start = split_keywords(signature, arguments)
    names = keyword_names(arguments, start, "model", program.span_of("model"))
    keywords = dict(zip(names, arguments[start + 1 :: 2], strict=True))
    return program.call("model", arguments[:start], keywords)


def flatten_prediction(prediction: object) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a prediction by their paths, in lists and plists to any depth.

    Numbers, booleans, strings and nil are left out; anything else raises E-INFER-001, and more
    than `VALUE_LIMIT` values E-LIMIT-004.
    """
    waiting: list[tuple[str, object]] = [("", prediction)]
    count = 0
    while waiting:
        path, value = waiting.pop()
        count += 1
        if count > VALUE_LIMIT:
            raise SexpgpuError(
                "E-LIMIT-004", f"the prediction holds more than {VALUE_LIMIT:,} values"
            )
        if isinstance(value, Tensor):
            yield path or "output", value
        elif is_plist(value):
            prefix = f"{path}." if path else ""
            pairs = zip(value[::2], value[1::2], strict=True)
            waiting += reversed([(f"{prefix}{key.name}", item) for key, item in pairs])
        elif isinstance(value, tuple):
            # One more than the limit is never looked at.
            items = enumerate(value[: VALUE_LIMIT + 1])
            waiting += reversed([(f"{path or 'output'}.{i}", item) for i, item in items])
        elif value is not None and type(value) not in (bool, int, float, str):
            raise SexpgpuError(
                "E-INFER-001",
                "a model run alone returns tensors, in lists and plists; "
                f"`{path or 'output'}` is {describe(value)}",
            )


def _preparing(program: Program, *names: str) -> str | None:
    """Which function prepares records: the first of these that the program defines, or none."""
    found = (name for name in (*names, "prepare") if program.defined(name) is not None)
    return next(found, None)


def _as_inputs(given: object) -> tuple[list[object], list[Value]]:
    """The model's arguments, every tensor in them a fresh input of its type."""
    inputs: list[Value] = []
    count = 0

    def fresh(value: object, name: str) -> object:
        nonlocal count
        count += 1
        if count > VALUE_LIMIT:
            raise SexpgpuError("E-LIMIT-004", f"`:inputs` holds more than {VALUE_LIMIT:,} values")
        if isinstance(value, Tensor):
            inputs.append(Value(value.type, name=name))
            return Tensor(inputs[-1])
        if isinstance(value, tuple):
            return tuple([fresh(item, f"{name}.{i}") for i, item in enumerate(value)])
        return value

    if isinstance(given, tuple):
        return [fresh(item, f"inputs.{i}") for i, item in enumerate(given)], inputs
    return [fresh(given, "inputs")], inputs


def _close(inputs: list[Value], outputs: dict[str, Value], program: Program) -> Alone:
    """The graph that the outputs need, its weights in the order of the model's parts."""
    nodes = reachable(outputs.values())
    read = {value for node in nodes for value in node.inputs} | set(outputs.values())
    for node in nodes:
        if node.operation.random:
            raise SexpgpuError(
                "E-INFER-002",
                f"the model reads numbers that `{node.operation.name}` draws",
                place=str(node.position) if node.position else None,
                help="give them to the model in `:inputs`",
            )
    parameters = program.parameters()
    known = {parameter.value: path for path, parameter in parameters.items()}
    strangers = [v for v in read if v.node is None and v not in known and v not in inputs]
    if strangers:
        raise _stranger(program, min(strangers, key=lambda value: value.name))
    weights = {path: value for value, path in known.items() if value in read}
    return Alone(
        Graph(inputs=inputs, weights=weights, nodes=nodes, outputs=outputs),
        {path: parameter for path, parameter in parameters.items() if path in weights},
    )


def _stranger(program: Program, value: Value) -> SexpgpuError:
    """Why the model cannot read a value that is neither an input nor a parameter of its own."""
    if isinstance(value, Weight):
        return SexpgpuError(
            "E-MODEL-002",
            f"the model reads a parameter {value.type} that is in none of its parts",
            span=value.span,
            help="name it in `parts`, or with a `def` at the top level",
        )
    name = _preparing(program, "eval-prepare")
    return SexpgpuError(
        "E-INFER-001",
        f"the model reads the record's field `{value.name}` past its inputs",
        span=program.span_of(name),
        help="give it to the model in `:inputs`",
    )
