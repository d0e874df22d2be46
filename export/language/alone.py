"""The model alone: traced for any number of records, as its evaluation runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.graph import Graph, Value, reachable
from sexpgpu.export.graph.types import Batch
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.program import Program
from sexpgpu.export.language.signature import keyword_names, split_keywords
from sexpgpu.export.language.tensors import Parameter, Tensor
from sexpgpu.export.language.values import describe
from sexpgpu.schemas.errors import SexpgpuError


@dataclass
class Alone:
    """A traced model: its graph, and the parameters that it reads, by path."""

    graph: Graph
    parameters: dict[str, Parameter]


def trace_alone(program: Program) -> Alone:
    """The graph of `model`, applied to what `eval-prepare` or `prepare` makes of one record.

    Raises E-INFER-001 where the prediction holds what is no tensor.
    """
    tracer = program.tracer
    tracer.training = False
    prepared = prepare(program, "eval-prepare")
    arguments, inputs = _as_inputs(prepared)
    prediction = apply_model(program, arguments)
    outputs: dict[str, Tensor] = {}
    for name, leaf in flatten_prediction(prediction):
        if name in outputs:
            raise SexpgpuError("E-INFER-001", f"two tensors of the prediction are called `{name}`")
        outputs[name] = leaf
    if not outputs:
        raise SexpgpuError(
            "E-INFER-001",
            "a model run alone returns tensors, and there is none in its prediction",
            came=describe(prediction),
        )
    return _close(inputs, {name: tensor.value for name, tensor in outputs.items()}, program)


def prepare(program: Program, *names: str) -> Any:
    """What the first of these functions, or `prepare`, makes of a batch of the loader's records.

    Without any of them every field is an input.  Raises E-MODEL-003 where `:inputs` is missing.
    """
    loader = program.records()
    if loader is None:
        raise SexpgpuError(
            "E-MODEL-003",
            f"{program.path} says nowhere what a record is",
            expected="a loader in `defrun`, or (def record (fields :tokens (list i32 16)))",
        )
    fields = [
        item
        for name, type in loader.fields.items()
        for item in (Keyword(name), Tensor(Value(type, name=name)))
    ]
    function = next(
        (f for name in (*names, "prepare") if (f := program.defined(name)) is not None), None
    )
    if function is None:
        return (Keyword("inputs"), tuple(fields[1::2]) if len(fields) > 2 else fields[1])
    return program.evaluator.apply(function, [tuple(fields)])


def inputs_of(prepared: object) -> object:
    """`:inputs` of a plist that `prepare` returned."""
    if isinstance(prepared, tuple) and not len(prepared) % 2:
        for key, value in zip(prepared[::2], prepared[1::2], strict=True):
            if key == Keyword("inputs"):
                return value
    raise SexpgpuError(
        "E-MODEL-003",
        "`prepare` returns a plist with `:inputs`",
        came=describe(prepared),
        expected="(list :inputs x …)",
    )


def apply_model(program: Program, arguments: list[object]) -> object:
    """The prediction: the model called with these, of which keywords may name parameters."""
    model = program.model
    signature = getattr(model, "signature", None)
    start = split_keywords(signature, arguments)
    names = keyword_names(arguments, start, "model", None)
    keywords = dict(zip(names, arguments[start + 1 :: 2], strict=True))
    return program.evaluator.apply(model, arguments[:start], keywords)


def flatten_prediction(prediction: object) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a prediction by their paths, in lists and plists to any depth.

    Numbers, booleans, strings and nil are left out; anything else raises E-INFER-001.
    """

    def walk(value: object, path: str) -> Iterator[tuple[str, Tensor]]:
        if isinstance(value, Tensor):
            yield path or "output", value
        elif isinstance(value, tuple):
            plist = value and not len(value) % 2
            if plist and all(isinstance(key, Keyword) for key in value[::2]):
                for key, item in zip(value[::2], value[1::2], strict=True):
                    yield from walk(item, f"{path}.{key.name}" if path else key.name)
            else:
                for index, item in enumerate(value):
                    yield from walk(item, f"{path or 'output'}.{index}")
        elif value is not None and not isinstance(value, int | float | str):
            raise SexpgpuError(
                "E-INFER-001",
                "a model run alone returns tensors, in lists and plists; "
                f"`{path or 'output'}` is {describe(value)}",
            )

    return walk(prediction, "")


def _as_inputs(prepared: object) -> tuple[list[object], list[Value]]:
    """The model's arguments, every tensor in them a fresh input of its type."""
    inputs: list[Value] = []

    def fresh(value: object, name: str) -> object:
        if isinstance(value, Tensor):
            inputs.append(Value(value.type, name=name))
            return Tensor(inputs[-1])
        if isinstance(value, tuple):
            return tuple([fresh(item, f"{name}.{i}") for i, item in enumerate(value)])
        return value

    given = inputs_of(prepared)
    if isinstance(given, tuple):
        arguments = [fresh(item, f"inputs.{i}") for i, item in enumerate(given)]
    else:
        arguments = [fresh(given, "inputs")]
    return arguments, inputs


def _close(inputs: list[Value], outputs: dict[str, Value], program: Program) -> Alone:
    """The graph that the outputs need, its weights in the order of the model's parts."""
    nodes = reachable(outputs.values())
    read = {value for node in nodes for value in node.inputs} | set(outputs.values())
    known = {parameter.value: path for path, parameter in program.parameters().items()}
    for value in read:
        if value.node is None and value not in known and value not in inputs:
            if value.name and any(isinstance(d, Batch) for d in value.type.shape):
                raise SexpgpuError(
                    "E-INFER-001",
                    f"the model reads the record's field `{value.name}` past its inputs",
                    help="give it to the model in `:inputs`",
                )
            raise SexpgpuError(
                "E-MODEL-002",
                f"the model reads a parameter {value.type} that is in none of its parts",
                help="name it in `parts`, or with a `def` at the top level",
            )
    weights = {path: value for value, path in known.items() if value in read}
    return Alone(
        Graph(inputs=inputs, weights=weights, nodes=nodes, outputs=outputs),
        {path: parameter for path, parameter in program.parameters().items() if path in weights},
    )
