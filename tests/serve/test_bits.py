"""The same bits whatever a call runs with: every operation of the language under mixed load."""

from __future__ import annotations

import pytest

from sexpgpu.export.graph.types import Batch, DType
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.serve.probe import ALONE
from support.hosting import differences, host_sample, open_engine, records_of
from support.limits import has_onnx
from support.samples import B, Sample, all_samples, call, numbers

LIMIT = 16
RECORDS = 48
RUNS = 30

#: Operations of which no call batches, and why.
NEVER = {
    "iota": "its length is no record's",
    "full": "it has no input",
    "random-normal": "it draws random numbers",
    "random-uniform": "it draws random numbers",
    "dropout": "it draws random numbers",
    "constant": "it has no input",
    "eye": "it has no input",
}

#: What the probe keeps from running in batches as they are: the sums and the sines inside of these
#: are no operations of the graph, which could be written in others.
_F64 = frozenset({DType.F64})
LIMITED: dict[str, frozenset[DType]] = {
    "cross-entropy": frozenset({DType.F32, DType.F64, DType.BF16}),
    "rotary": _F64,
}

ELEMENTWISE = (
    "sigmoid softplus relu leaky-relu elu silu gelu hard-swish neg abs sign floor ceil round exp "
    "log log1p expm1 sqrt rsqrt sin cos tan tanh erf asin acos atan sinh cosh asinh acosh atanh "
    "erfc lgamma"
).split()
REDUCED = "sum mean variance logsumexp norm prod max min".split()
NORMALIZED = "softmax log-softmax layer-normalize rms-normalize".split()


def more_samples() -> list[Sample]:
    """Shapes that leave tails of vectors, and rows of odd lengths."""
    found = [call(name, numbers(B, size)) for name in ELEMENTWISE for size in (1, 7, 33)]
    for size in (5, 13, 31, 64):
        found += [call(name, numbers(B, size), axis=(-1,)) for name in REDUCED]
        found += [call(name, numbers(B, size, 3), axis=(1,)) for name in REDUCED]
        found += [call(name, numbers(B, size), axis=-1) for name in NORMALIZED]
        found += [call(name, numbers(B, size, 3), axis=1) for name in NORMALIZED]
    for left, right in (
        ((B, 7), (7, 5)),
        ((B, 64), (64, 64)),
        ((B, 16, 33), (33, 17)),
        ((B, 5, 7), (B, 7, 3)),
        ((B, 33, 64), (B, 64, 1)),
    ):
        found.append(call("matmul", numbers(*left), numbers(*right)))
    found += [call(name, numbers(B, 7), numbers(B, 7)) for name in ("maximum", "minimum", "pow")]
    return found


def samples_by_operation() -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {name: [] for name in all_operations()}
    for sample in (*all_samples(), *more_samples()):
        found[sample.operation.name].append(sample)
    return found


SAMPLES = samples_by_operation()


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - set(NEVER)))
def test_an_answer_has_the_bits_of_the_call_alone(name: str) -> None:
    batched = False
    for sample in SAMPLES[name]:
        for dtype in sample.dtypes:
            hosted = host_sample(sample, dtype) if has_onnx(sample, dtype, Batch()) else None
            if hosted is None or hosted.obstacle:
                continue
            engine, plan = open_engine(hosted, LIMIT)
            wrong = list(differences(engine, plan, records_of(sample, dtype, RECORDS), RUNS))
            assert not wrong, f"{sample} {dtype}: {plan.describe()}: {wrong[:3]}"
            if dtype not in LIMITED.get(name, ()):
                assert (plan.limit, plan.refused) == (LIMIT, ()), (
                    f"{sample} {dtype}: {plan.describe()}"
                )
            batched = batched or plan != ALONE
    assert batched


def test_every_operation_is_tried() -> None:
    assert set(NEVER) <= set(SAMPLES)
    assert [name for name in SAMPLES if not SAMPLES[name] and name not in NEVER] == []


def test_a_model_whose_records_meet_says_which_operation_mixes_them() -> None:
    sample = next(s for s in SAMPLES["cumsum"] if s.batch_axes == [1])
    assert host_sample(sample, DType.F32) is not None
    mixed = call("softmax", numbers(B, 3), axis=0)
    hosted = host_sample(mixed, DType.F32)
    assert hosted is not None
    assert "`softmax`" in hosted.obstacle
    assert "mixes the records" in hosted.obstacle
