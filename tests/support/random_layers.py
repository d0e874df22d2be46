"""How random graphs draw products, layers and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sexpgpu.export.graph.graph import Value
from sexpgpu.export.graph.types import Dimension, DType, TensorType
from sexpgpu.export.operations.operation import Operation
from sexpgpu.export.operations.signature import GIVEN
from support.random_plain import Made, NothingFits, Recipe

if TYPE_CHECKING:
    from support.random_graphs import RandomGraph


def _matmul(made: RandomGraph, operation: Operation) -> Made:
    a = made.pick(lambda type: type.dtype.is_float and type.rank > 0)
    inner = a.type.shape[-1]
    b = made.pick(
        lambda type: (
            type.dtype is a.type.dtype
            and type.rank > 0
            and type.shape[-2 if type.rank > 1 else -1] == inner
        )
    )
    return [a, b], {}


def _einsum(made: RandomGraph, operation: Operation) -> Made:
    letters = "abcdefgh"
    count = int(made.generator.integers(1, 4))
    words, sizes, inputs = [], dict[str, Dimension](), list[Value]()
    dtype = made.choose(DType.F32, DType.F32, DType.F64)
    for _ in range(count):
        value = made.pick(lambda type: type.dtype is dtype and 0 < type.rank < 5)
        word = ""
        for length in value.type.shape:
            known = [c for c, size in sizes.items() if size == length and c not in word]
            if not known or made.chance(0.3):
                known = [next(c for c in letters if c not in sizes)] if len(sizes) < 8 else known
            if not known:
                raise NothingFits
            letter = made.choose(*known)
            sizes[letter] = length
            word += letter
        words.append(word)
        inputs.append(value)
    result = "".join(str(c) for c in made.generator.permutation(list(sizes)) if made.chance(0.7))
    return inputs, {"equation": ",".join(words) + "->" + result}


def _conv(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(
        lambda type: (
            type.dtype is DType.F32 and type.rank in (3, 4) and type.shape[1] in range(1, 99)
        )
    )
    channels = x.type.shape[1]
    assert isinstance(channels, int)
    size = [made.choose(1, 2, 3) for _ in range(x.type.rank - 2)]
    groups = made.choose(1, 1, channels)
    w = made.add_weight(f"conv.{len(made.weights)}", DType.F32, channels, channels // groups, *size)
    left = tuple((d - 1, 0) for d in size)
    return [x, w], {"padding": made.choose(left, 0, "same"), "groups": groups}


def _pool(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(lambda type: type.dtype is DType.F32 and type.rank in (3, 4))
    size = tuple(made.choose(1, 2) for _ in range(x.type.rank - 2))
    return [x], {"size": size, "stride": made.choose(None, (1,) * len(size))}


def _resize(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(lambda type: type.dtype is DType.F32 and type.rank in (3, 4))
    size = tuple(made.choose(made.positions, 3) for _ in range(x.type.rank - 2))
    return [x], {"size": size, "mode": made.choose("nearest", "linear", "cubic")}


def _normalize(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(lambda type: type.dtype.is_float and type.rank > 0)
    axis = made.choose(x.type.rank - 1, int(made.generator.integers(x.type.rank)))
    inputs, given = [x], []
    for operand in operation.signature.operands[1:]:
        if made.chance(0.5):
            vector = x.type.with_shape(x.type.shape[axis:])
            inputs.append(made.pick(lambda type, wanted=vector: type == wanted))
            given.append(operand.name)
    return inputs, {"axis": axis, GIVEN: tuple(given)}


def _batch_normalize(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(
        lambda type: type.dtype is DType.F32 and type.rank > 1 and type.shape[1] in range(1, 99)
    )
    channels = x.type.shape[1]
    assert isinstance(channels, int)
    count = len(made.weights)
    vectors = [made.add_weight(f"norm.{count}.{i}", DType.F32, channels) for i in range(4)]
    # A variance is positive.
    made.weights[vectors[3].name] = abs(made.weights[vectors[3].name]) + 0.1
    return [x, *vectors], {}


def _cross_entropy(made: RandomGraph, operation: Operation) -> Made:
    logits = made.pick(lambda type: type.dtype is DType.F32 and type.rank > 0)
    targets = made.index(lambda type: type.shape == logits.type.shape[:-1])
    return [logits, targets], {"ignore": made.choose(None, 1)}


def _attention(made: RandomGraph, operation: Operation) -> Made:
    rank = made.choose(3, 4)
    q = made.pick(lambda type: type.dtype.is_float and type.rank == rank)

    def fits(type: TensorType) -> bool:
        return type.dtype is q.type.dtype and type.rank == rank and type.shape[0] == q.type.shape[0]

    k = made.pick(lambda type: fits(type) and type.shape[-1] == q.type.shape[-1])
    v = made.pick(lambda type: fits(type) and type.shape[:-1] == k.type.shape[:-1])
    inputs, given = [q, k, v], []
    for name, dtypes in (
        ("mask", (DType.BOOL,)),
        ("bias", (q.type.dtype,)),
        ("positions", (DType.I32, DType.I64)),
    ):
        if made.chance(0.3):
            inputs.append(made.pick(lambda type, wanted=dtypes: type.dtype in wanted))
            given.append(name)
    return inputs, {
        GIVEN: tuple(given),
        "causal": made.chance(0.6),
        "window": made.choose(None, None, 2, 3),
        "softcap": made.choose(None, None, 5.0),
        "offset": made.choose(0, 0, -1, 1),
    }


def _rotary(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(lambda type: type.dtype.is_float and type.rank > 1)
    attributes = {"interleaved": made.choose(True, False)}
    if made.chance(0.3):
        return [x, made.index()], {GIVEN: ("positions",), **attributes}
    return [x], {GIVEN: (), **attributes}


def _recurrent(made: RandomGraph, operation: Operation) -> Made:
    x = made.pick(
        lambda type: (
            type.dtype in (DType.F32, DType.F64)
            and type.rank == 3
            and isinstance(type.shape[2], int)
        )
    )
    width = x.type.shape[2]
    assert isinstance(width, int)
    gates, name = 4 if operation.name == "lstm" else 3, f"{operation.name}.{len(made.weights)}"
    hidden = made.choose(2, width)
    w = made.add_weight(f"{name}.w", x.type.dtype, gates * hidden, width)
    r = made.add_weight(f"{name}.r", x.type.dtype, gates * hidden, hidden)
    return [x, w, r], {"reverse": made.chance(0.3)}


def _scan(made: RandomGraph, operation: Operation) -> Made:
    """Steps along an axis: what they add reads the carry, the slice, both, or what is outside."""
    x = made.pick(lambda type: type.dtype is DType.F32 and type.rank > 1)
    axis = int(made.generator.integers(x.type.rank))
    slice_type = x.type.with_shape((*x.type.shape[:axis], *x.type.shape[axis + 1 :]))
    starts = [value for value in made.values if value.type == slice_type]
    operands = [made.one_of(starts), x] if starts else [x]
    body = made.body([Value(slice_type, name=f"part.{i}") for i in range(len(operands))])
    body.grow(
        ["+", "*", "tanh", "softmax", "sum", "max", "flip", "cumsum"],
        int(made.generator.integers(0, 4)),
    )
    body.graph.outputs = {"added": body.pick()}
    if starts:
        after = body.pick(lambda type: type == slice_type)
        body.graph.outputs = {"next": after, **body.graph.outputs}
    return operands, {
        "body": body.graph,
        "carries": len(operands) - 1,
        "sequences": 1,
        "axis": axis,
        "reverse": made.chance(0.2),
    }


LAYERS: dict[str, Recipe] = {
    "layer-normalize": _normalize,
    "rms-normalize": _normalize,
    "batch-normalize": _batch_normalize,
    "cross-entropy": _cross_entropy,
    "matmul": _matmul,
    "einsum": _einsum,
    "conv": _conv,
    "max-pool": _pool,
    "average-pool": _pool,
    "resize": _resize,
    "attention": _attention,
    "rotary": _rotary,
    "lstm": _recurrent,
    "gru": _recurrent,
    "scan": _scan,
}
