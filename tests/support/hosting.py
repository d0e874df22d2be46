"""One operation hosted as a model, and mixed load over an engine, each answer's bits compared."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from sexpgpu.export.graph.document import ModelFile
from sexpgpu.export.graph.graph import Graph, Node, Value, make_node
from sexpgpu.export.graph.types import Array, Batch, DType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.serve.engine import Engine
from sexpgpu.serve.host import Loaded
from sexpgpu.serve.hosted import Hosted, Shaping
from sexpgpu.serve.library import Model
from sexpgpu.serve.lowering import host_model
from sexpgpu.serve.probe import Plan, probe
from sexpgpu.serve.session import Device, open_session
from support.samples import B, Sample, Tensor

CPU = Device("cpu")


def sample_graph(sample: Sample, dtype: DType) -> tuple[Graph, dict[str, Array]] | None:
    """A model of the call alone, and its weights: whatever has no batch is a weight.

    A batch that is not the first axis is moved there outside.  None where nothing has a batch.
    """
    inputs: list[Value] = []
    weights: dict[str, Value] = {}
    arrays: dict[str, Array] = {}
    nodes: list[Node] = []
    operands = []
    generator = np.random.default_rng(0)
    for index, tensor in enumerate(sample.tensors):
        name, type = f"x{index}", tensor.type(dtype, B)
        axis = tensor.batch_axis
        if axis is None:
            weights[name] = Value(type, name=name)
            arrays[name] = tensor.draw(generator, dtype, 1)
            operands.append(weights[name])
            continue
        rank = len(type.shape)
        order = [axis, *(i for i in range(rank) if i != axis)]
        value = Value(type.with_shape([type.shape[i] for i in order]), name=name)
        inputs.append(value)
        operands.append(_permuted(value, [order.index(i) for i in range(rank)], nodes))
    if not inputs:
        return None
    call = sample.node(dtype)
    node = make_node(call.operation, operands, call.attributes)
    nodes.append(node)
    outputs = {}
    for index, result in enumerate(node.results):
        axes = [i for i, d in enumerate(result.type.shape) if isinstance(d, Batch)]
        if len(axes) == 1:
            rank = len(result.type.shape)
            order = [axes[0], *(i for i in range(rank) if i != axes[0])]
            result = _permuted(result, order, nodes)
        outputs[f"y{index}"] = result
    return Graph(inputs, weights, nodes, outputs), arrays


def _permuted(value: Value, order: list[int], nodes: list[Node]) -> Value:
    if order == sorted(order):
        return value
    attributes = {a.name: a.default for a in all_operations()["permute"].signature.attributes}
    nodes.append(
        make_node(all_operations()["permute"], [value], attributes | {"axes": tuple(order)})
    )
    return nodes[-1].results[0]


def host_sample(sample: Sample, dtype: DType) -> Hosted | None:
    """The call as a model to host; None where nothing of it has a batch."""
    made = sample_graph(sample, dtype)
    if made is None:
        return None
    graph, arrays = made
    return host_model(ModelFile(graph, "f32"), arrays.__getitem__, str(sample), Shaping())


def open_engine(hosted: Hosted, limit: int, threads: int = 1) -> tuple[Engine, Plan]:
    """An engine for the hosted model, and the plan that its probe made.

    The probe has time for every size, however busy the machine is.
    """
    engine = Engine(open_session(hosted, CPU, threads), hosted, limit, clock=time.thread_time)
    return engine, probe(engine, seconds=2.0)


def records_of(sample: Sample, dtype: DType, count: int) -> list[list[bytes]]:
    """Records for the inputs of a sample's model, extreme ones among them where they may be."""
    tensors = [t for t in sample.tensors if t.batch_axis is not None]
    drawn = []
    for index in range(count):
        generator = np.random.default_rng([index, 7])
        drawn.append([_record(tensor, dtype, index, generator) for tensor in tensors])
    return drawn


def _record(tensor: Tensor, dtype: DType, index: int, generator: np.random.Generator) -> bytes:
    dtype = tensor.dtype or dtype
    axis = tensor.batch_axis
    assert axis is not None
    array = np.moveaxis(tensor.draw(generator, dtype, 1), axis, 0)
    if tensor.free and dtype.is_float:
        kind = index % 8
        if kind == 1:
            array = np.asarray(generator.standard_normal(array.shape) * 10)
        elif kind == 3:
            array = np.full(array.shape, (np.nan, np.inf, -np.inf, 0.0, 1e30, -0.0)[index // 8 % 6])
        elif kind == 5:
            special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 1.5]
            array = np.asarray(generator.choice(special, array.shape))
        elif kind == 7:
            array = np.asarray(np.exp(generator.standard_normal(array.shape) * 20))
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(dtype.numpy)).tobytes()


def differences(
    engine: Engine, plan: Plan, records: list[list[bytes]], runs: int, seed: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Runs records in random batches; (size, row, record) of answers unlike those of calls alone.

    Rows beyond the calls are filled as they lie, with what earlier runs have left there.
    """
    buffers = engine.buffers

    def run(indices: list[int]) -> list[bytes]:
        for row, index in enumerate(indices):
            for rows, data in zip(buffers.inputs, records[index], strict=True):
                rows.row(row)[:] = data
        engine.run(plan.size_for[len(indices)])
        return [b"".join(rows.row(row) for rows in buffers.outputs) for row in range(len(indices))]

    alone = [run([index])[0] for index in range(len(records))]
    generator = np.random.default_rng(seed)
    for _ in range(runs):
        size = int(generator.integers(1, plan.limit + 1))
        indices = generator.integers(0, len(records), size).tolist()
        for row, answer in enumerate(run(indices)):
            if answer != alone[indices[row]]:
                yield size, row, indices[row]


def model_of(hosted: Hosted, limit: int = 8, plan: Plan | None = None) -> Model:
    """The hosted model in this process, probed unless the plan is given."""
    engine, probed = open_engine(hosted, limit)
    return Model(Loaded(hosted, engine, plan or probed, CPU))
