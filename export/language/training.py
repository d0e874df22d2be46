"""The model in training and in its evaluation: traced from a batch of records to the loss."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from dataclasses import dataclass

from sexpgpu.export.graph.graph import Graph, Value, reachable
from sexpgpu.export.language.alone import apply_model, inputs_of, prepare, record_fields
from sexpgpu.export.language.plists import is_plist
from sexpgpu.export.language.program import Program
from sexpgpu.export.language.suggestion import misnamed
from sexpgpu.export.language.tensors import Parameter, Tensor, Weight
from sexpgpu.export.language.tracing import Note
from sexpgpu.export.language.values import portray
from sexpgpu.schemas.errors import SexpgpuError, Span

LOSS = "loss"
#: What a run tells beside the metrics.
LEARNING_RATE = "learning_rate"


@dataclass
class Training:
    """A step's graph: from the record's fields to the loss and what else is told of it.

    The graph's outputs are `metric:<name>`, of which `metric:loss` is the first, `counter:<name>`
    and `guard:<name>`; a name that was noted before is numbered, `<name>.2`.  `guards` says where
    each guard is written.  `parameters` are those that it reads, by path.
    """

    graph: Graph
    parameters: dict[str, Parameter]
    guards: dict[str, Span | None]

    def names(self, kind: str) -> list[str]:
        """The names of its metrics, counters or guards."""
        prefix = f"{kind}:"
        return [n.removeprefix(prefix) for n in self.graph.outputs if n.startswith(prefix)]


def trace_training(program: Program) -> Training | None:
    """A step of training; None for a program without `loss`.

    Raises E-MODEL-004 where `loss` gives no scalar, and whatever is wrong on the way to it.
    """
    return _trace(program, training=True)


def trace_evaluation(program: Program) -> Training | None:
    """The same of an evaluation: of what `eval-prepare` makes, and dropout left out."""
    return _trace(program, "eval-prepare", training=False)


def _trace(program: Program, *preparing: str, training: bool) -> Training | None:
    if program.defined("loss") is None:
        return None
    tracer = program.tracer
    fields = record_fields(program)
    prepared = prepare(program, *preparing, fields=fields)
    notes = list(tracer.notes)
    with tracer.mode(training=training):
        given = inputs_of(program, prepared, *preparing)
        prediction = apply_model(program, list(given) if isinstance(given, tuple) else [given])
        notes += tracer.notes
    # What `loss` draws is no part of the model.
    with tracer.mode(training=training, draws=True):
        result = program.call("loss", [prediction, prepared])
        notes += tracer.notes
    told = [Note("metric", n, v, None) for n, v in _measures(program, result).items()]
    outputs: dict[str, Value] = {}
    guards: dict[str, Span | None] = {}
    # Metrics and counters are shown together, beside the rate.
    shown = {LEARNING_RATE}
    for note in (*told, *notes):
        name = _numbered(note.name, guards if note.kind == "guard" else shown)
        outputs[f"{note.kind}:{name}"] = note.value
        if note.kind == "guard":
            guards[name] = note.span
        else:
            shown.add(name)
    return _close([field.value for field in fields.values()], outputs, guards, program)


def _numbered(name: str, taken: Container[str]) -> str:
    """The name, or `name.2`, `name.3` … where it is taken: a part used twice notes twice."""
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(2)))
    return next(free for free in names if free not in taken)


def _measures(program: Program, result: object) -> dict[str, Value]:
    """What `loss` returned, by name, the loss first."""
    if not is_plist(result):
        return {LOSS: _scalar(program, "what `loss` returns", result)}
    named = {key.name: value for key, value in zip(result[::2], result[1::2], strict=True)}
    if LOSS not in named:
        raise _no_loss(program, "the plist that `loss` returns has no `:loss`", result, [*named])
    values = {
        name: _scalar(program, f"`:{name}` of what `loss` returns", value)
        for name, value in named.items()
    }
    return {LOSS: values.pop(LOSS), **values}


def _scalar(program: Program, what: str, value: object) -> Value:
    if not isinstance(value, Tensor) or value.type.shape or not value.type.dtype.is_float:
        raise _no_loss(program, f"{what} is no scalar", value)
    return value.value


def _no_loss(
    program: Program, message: str, value: object, names: Sequence[str] = ()
) -> SexpgpuError:
    help = misnamed(LOSS, names, ":")
    if isinstance(value, Tensor):
        help = "reduce it with `mean`" if value.type.shape else "convert it: `(cast x f32)`"
    return SexpgpuError(
        "E-MODEL-004",
        message,
        span=program.span_of("loss"),
        came=portray(value),
        expected="a tensor [] of floats, or a plist of such with `:loss`",
        help=help,
    )


def _close(
    fields: list[Value],
    outputs: dict[str, Value],
    guards: dict[str, Span | None],
    program: Program,
) -> Training:
    """The graph that the outputs need; of the fields, those that it reads are its inputs."""
    nodes = reachable(outputs.values())
    read = {value for node in nodes for value in node.inputs} | set(outputs.values())
    parameters = program.parameters()
    weights = {path: p.value for path, p in parameters.items() if p.value in read}
    known = {*fields, *weights.values()}
    for value in read:
        if value.node is None and value not in known:
            assert isinstance(value, Weight)
            raise SexpgpuError(
                "E-MODEL-002",
                f"a step reads a parameter {value.type} that is in no part of the model",
                span=value.span,
                help="name it in `parts`, or with a `def` at the top level",
            )
    inputs = [field for field in fields if field in read]
    graph = Graph(inputs=inputs, weights=weights, nodes=nodes, outputs=outputs)
    return Training(graph, {path: parameters[path] for path in weights}, guards)
