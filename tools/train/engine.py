"""One step of a run as a single compiled program: the gradient, the update, and what is told of it.

A step is a function of the state, the records and the step's number alone: the numbers that it
draws come from the run's seed and the step's number, so that a resumed run takes the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.run import Run
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.language.training import LOSS, Training
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.schemas.precision import Precision
from sexpgpu.tools.train.average import update as update_averages
from sexpgpu.tools.train.lowering.compute import compute

Arrays: TypeAlias = dict[str, jax.Array]


class State(NamedTuple):
    """What a step changes.

    `parameters` are those that are trained, by path, f32 where the program says bf16: they are
    rounded where they are used.  `averages` are empty without `:ema`.  `broken` becomes true at the
    first step whose loss is not finite or whose guard does not hold; from there on nothing changes,
    so that what was wrong can be looked into.
    """

    parameters: Arrays
    averages: Arrays
    optimizer: Any
    counters: Arrays
    broken: jax.Array


class Told(NamedTuple):
    """What a step tells: its metrics, of which `loss` is one, and whether each guard held."""

    metrics: Arrays
    guards: Arrays


Step: TypeAlias = Callable[[State, Arrays, Mapping[str, jax.Array], jax.Array], tuple[State, Told]]
Evaluation: TypeAlias = Callable[[Arrays, Mapping[str, jax.Array], jax.Array], Arrays]


def is_trained(parameter: Parameter) -> bool:
    """Whether a run changes it: floats that are not frozen."""
    return parameter.type.dtype.is_float and not parameter.frozen


def master_dtype(parameter: Parameter) -> DType:
    """The dtype in which a parameter is trained."""
    dtype = parameter.type.dtype
    return DType.F32 if dtype is DType.BF16 else dtype


def first_state(
    training: Training, parameters: Arrays, optimizer: optax.GradientTransformation, run: Run
) -> State:
    """The state before the first step."""
    averages = {path: jnp.copy(array) for path, array in parameters.items()}
    counters = {
        name: jnp.zeros((), jnp.float64 if _counts(training, name).is_float else jnp.int64)
        for name in training.names("counter")
    }
    return State(
        parameters,
        averages if run.ema is not None else {},
        optimizer.init(parameters),
        counters,
        jnp.zeros((), bool),
    )


def make_step(training: Training, run: Run, optimizer: optax.GradientTransformation) -> Step:
    """A function of the state, the parameters that are not trained, a batch of records, and the
    step's number from 0.  The state that it is given is used up.

    The records of a step are `run.batch`, `run.accumulate` times, along their first axis.
    """
    graph = set_precision(training.graph, run.precision)
    seed, batch = run.seed, run.batch

    def objective(
        parameters: Arrays, rest: Arrays, record: Arrays, key: jax.Array
    ) -> tuple[jax.Array, Told]:
        weights = {**rest, **_as_declared(training, parameters)}
        outputs = compute(graph, record, weights, batch, key)
        told = Told(
            {name: _told(outputs[f"metric:{name}"]) for name in training.names("metric")}
            | {f"counter:{n}": _told(outputs[f"counter:{n}"]) for n in training.names("counter")},
            {name: outputs[f"guard:{name}"] for name in training.names("guard")},
        )
        return told.metrics[LOSS], told

    gradient = jax.grad(objective, has_aux=True)

    def step(
        state: State, rest: Arrays, records: Mapping[str, jax.Array], number: jax.Array
    ) -> tuple[State, Told]:
        key = jax.random.fold_in(jax.random.key(seed), number)
        given = {value.name: records[value.name] for value in graph.inputs}
        if run.accumulate == 1:
            gradients, told = gradient(state.parameters, rest, given, key)
        else:
            gradients, told = _accumulated(gradient, state.parameters, rest, given, key, run)
        updates, moved = optimizer.update(gradients, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        averages = state.averages
        if run.ema is not None:
            averages = update_averages(averages, parameters, run.ema, number)
        sums = {
            name: total + told.metrics[f"counter:{name}"].astype(total.dtype)
            for name, total in state.counters.items()
        }
        broken = state.broken | ~jnp.isfinite(told.metrics[LOSS])
        for held in told.guards.values():
            broken |= ~held
        after = State(parameters, averages, moved, sums, broken)
        metrics = {n: v for n, v in told.metrics.items() if not n.startswith("counter:")}
        told = Told(metrics | {f"counter:{n}": s for n, s in sums.items()}, told.guards)
        kept = jax.tree.map(lambda old, new: jnp.where(broken, old, new), state, after)
        return kept._replace(broken=broken), told

    compiled: Step = jax.jit(step, donate_argnums=0)
    return compiled


def make_evaluation(evaluation: Training, precision: Precision, seed: int) -> Evaluation:
    """A function of all parameters, a batch of records and the batch's number: the metrics."""
    graph = set_precision(evaluation.graph, precision)

    def evaluate(parameters: Arrays, records: Mapping[str, jax.Array], number: jax.Array) -> Arrays:
        key = jax.random.fold_in(jax.random.key(seed), number)
        given = {value.name: records[value.name] for value in graph.inputs}
        count = next(iter(records.values())).shape[0]
        weights = _as_declared(evaluation, {path: parameters[path] for path in graph.weights})
        outputs = compute(graph, given, weights, count, key)
        return {name: _told(outputs[f"metric:{name}"]) for name in evaluation.names("metric")}

    compiled: Evaluation = jax.jit(evaluate)
    return compiled


def _accumulated(
    gradient: Callable[..., tuple[Arrays, Told]],
    parameters: Arrays,
    rest: Arrays,
    records: Arrays,
    key: jax.Array,
    run: Run,
) -> tuple[Arrays, Told]:
    """Gradients and metrics, the means of `run.accumulate` batches; counters are their sums."""
    parts = {
        name: array.reshape(run.accumulate, run.batch, *array.shape[1:])
        for name, array in records.items()
    }

    def one(sums: Arrays, part: tuple[jax.Array, Arrays]) -> tuple[Arrays, Told]:
        index, given = part
        gradients, told = gradient(parameters, rest, given, jax.random.fold_in(key, index))
        return jax.tree.map(jnp.add, sums, gradients), told

    start = jax.tree.map(jnp.zeros_like, parameters)
    sums, told = jax.lax.scan(one, start, (jnp.arange(run.accumulate), parts))
    gradients = jax.tree.map(lambda total: total / run.accumulate, sums)
    metrics = {
        name: values.sum(0) if name.startswith("counter:") else values.mean(0)
        for name, values in told.metrics.items()
    }
    return gradients, Told(metrics, {name: held.all() for name, held in told.guards.items()})


def _as_declared(training: Training, parameters: Arrays) -> Arrays:
    """The parameters that the graph reads, in the dtypes that the program gave them."""
    return {
        path: parameters[path].astype(value.type.dtype.numpy)
        for path, value in training.graph.weights.items()
        if path in parameters
    }


def _told(value: jax.Array) -> jax.Array:
    """A number of at least 32 bits."""
    return value.astype(jnp.float32) if value.dtype == jnp.bfloat16 else value


def _counts(training: Training, name: str) -> DType:
    return training.graph.outputs[f"counter:{name}"].type.dtype
