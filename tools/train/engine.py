"""One step of a run as a single compiled program: the gradient, the update, and what is told of it.

A step is a function of the state, the records and the step's number alone: the numbers that it
draws come from the run's seed and the step's number, so that a resumed run takes the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.language.run import Run
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.language.training import LEARNING_RATE, LOSS, Training
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.schemas.precision import Precision
from sexpgpu.tools.train.average import start_averages
from sexpgpu.tools.train.average import update as update_averages
from sexpgpu.tools.train.lowering.compute import compute
from sexpgpu.tools.train.schedule import Schedule

Arrays: TypeAlias = dict[str, jax.Array]


class State(NamedTuple):
    """What a step changes.

    `parameters` are those that are trained, by path, f32 where the program says bf16: they are
    rounded where they are used.  `averages` are empty without `:ema`.  `broken` becomes true at the
    first step whose loss is not finite or whose guard does not hold; from there on the parameters
    stay as they were, so that what was wrong can be looked into.  The rest of the state is of no
    use then: to keep it as well would take a copy of the optimizer's at every step.
    """

    parameters: Arrays
    averages: Arrays
    optimizer: Any
    counters: Arrays
    broken: jax.Array


class _Found(NamedTuple):
    """What the graph gives for a batch."""

    metrics: Arrays
    counters: Arrays
    guards: Arrays


class Told(NamedTuple):
    """What a step tells: its metrics, of which `loss` is the first and `learning_rate` the last,
    whether each guard held, and whether this step or one before it went wrong."""

    metrics: Arrays
    guards: Arrays
    broken: jax.Array


#: The number of a step, or of a batch of an evaluation, from 0.
Number: TypeAlias = np.uint32
Step: TypeAlias = Callable[[State, Arrays, Arrays, Number], tuple[State, Told]]
Evaluation: TypeAlias = Callable[[Arrays, Arrays, Number], Arrays]


def as_master(parameter: Parameter, array: Array) -> Array:
    """The values in the dtype in which the parameter is trained: f32 for bf16."""
    dtype = parameter.type.dtype
    return array.astype(np.float32) if dtype is DType.BF16 else array


def first_state(
    training: Training, parameters: Arrays, optimizer: optax.GradientTransformation, run: Run
) -> State:
    """The state before the first step."""
    counters = {
        name: jnp.zeros((), jnp.float64 if _counts(training, name).is_float else jnp.int64)
        for name in training.names("counter")
    }
    return State(
        parameters,
        start_averages(parameters) if run.ema is not None else {},
        optimizer.init(parameters),
        counters,
        jnp.zeros((), bool),
    )


def make_step(
    training: Training, run: Run, optimizer: optax.GradientTransformation, rate: Schedule
) -> Step:
    """A function of the state, the parameters that are not trained, a batch of records, and the
    step's number from 0.  The state that it is given is used up.

    The records of a step are `run.batch`, `run.accumulate` times, along their first axis.
    """
    graph = set_precision(training.graph, run.precision)
    batch = run.batch

    def objective(
        parameters: Arrays, rest: Arrays, record: Arrays, key: jax.Array
    ) -> tuple[jax.Array, _Found]:
        weights = {**rest, **declared(training, parameters)}
        outputs = compute(graph, record, weights, batch, key)
        found = _Found(
            *(
                {name: _told(outputs[f"{kind}:{name}"]) for name in training.names(kind)}
                for kind in ("metric", "counter", "guard")
            )
        )
        return found.metrics[LOSS], found

    gradient = jax.grad(objective, has_aux=True)

    def step(
        state: State, rest: Arrays, records: Mapping[str, jax.Array], number: jax.Array
    ) -> tuple[State, Told]:
        given = {value.name: records[value.name] for value in graph.inputs}
        if run.accumulate == 1:
            key = step_key(run, number)
            gradients, found = gradient(state.parameters, rest, given, key)
        else:
            gradients, found = _accumulated(gradient, state.parameters, rest, given, number, run)
        updates, moved = optimizer.update(gradients, state.optimizer, state.parameters)
        broken = state.broken | ~jnp.isfinite(found.metrics[LOSS])
        for held in found.guards.values():
            broken |= ~held
        parameters = jax.tree.map(
            lambda old, new: jnp.where(broken, old, new),
            state.parameters,
            optax.apply_updates(state.parameters, updates),
        )
        averages = state.averages
        if run.ema is not None:
            averages = update_averages(averages, parameters, run.ema, number)
        sums = {
            name: total + found.counters[name].astype(total.dtype)
            for name, total in state.counters.items()
        }
        after = State(parameters, averages, moved, sums, broken)
        metrics = {**found.metrics, **sums, LEARNING_RATE: rate(number)}
        return after, Told(metrics, found.guards, broken)

    compiled: Step = jax.jit(step, donate_argnums=0)
    return compiled


def make_evaluation(evaluation: Training, precision: Precision, seed: int) -> Evaluation:
    """A function of all parameters, a batch of records and the batch's number: the metrics."""
    graph = set_precision(evaluation.graph, precision)

    def evaluate(parameters: Arrays, records: Mapping[str, jax.Array], number: jax.Array) -> Arrays:
        key = jax.random.fold_in(jax.random.key(seed), number)
        given = {value.name: records[value.name] for value in graph.inputs}
        count = next(iter(records.values())).shape[0]
        weights = declared(evaluation, {path: parameters[path] for path in graph.weights})
        outputs = compute(graph, given, weights, count, key)
        return {name: _told(outputs[f"metric:{name}"]) for name in evaluation.names("metric")}

    compiled: Evaluation = jax.jit(evaluate)
    return compiled


def _accumulated(
    gradient: Callable[..., tuple[Arrays, _Found]],
    parameters: Arrays,
    rest: Arrays,
    records: Arrays,
    number: jax.Array,
    run: Run,
) -> tuple[Arrays, _Found]:
    """Gradients and metrics, the means of `run.accumulate` batches; counters are their sums."""
    parts = {
        name: array.reshape(run.accumulate, run.batch, *array.shape[1:])
        for name, array in records.items()
    }

    def one(sums: Arrays, part: tuple[jax.Array, Arrays]) -> tuple[Arrays, _Found]:
        index, given = part
        gradients, found = gradient(parameters, rest, given, step_key(run, number, index))
        return jax.tree.map(jnp.add, sums, gradients), found

    start = jax.tree.map(jnp.zeros_like, parameters)
    sums, found = jax.lax.scan(one, start, (jnp.arange(run.accumulate), parts))
    gradients = jax.tree.map(lambda total: total / run.accumulate, sums)
    return gradients, _Found(
        {name: values.mean(0) for name, values in found.metrics.items()},
        {name: values.sum(0) for name, values in found.counters.items()},
        {name: held.all() for name, held in found.guards.items()},
    )


def step_key(run: Run, number: int | jax.Array, part: int | jax.Array = 0) -> jax.Array:
    """What the random numbers of a step start from, or of one of its batches."""
    key = jax.random.fold_in(jax.random.key(run.seed), number)
    return jax.random.fold_in(key, part) if run.accumulate > 1 else key


def declared(training: Training, parameters: Arrays) -> Arrays:
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
