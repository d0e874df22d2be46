"""The probe: what it refuses, what it pads, and how long it takes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sexpgpu.serve.engine import Buffers, Engine
from sexpgpu.serve.hosted import Hosted
from sexpgpu.serve.probe import ALONE, Plan, _part, candidate_sizes, probe
from sexpgpu.serve.session import open_session
from support.hosting import CPU
from support.serving import onnx_hosted


def engine(hosted: Hosted, limit: int) -> Engine:
    return Engine(open_session(hosted, CPU, 1), hosted, limit, clock=time.thread_time)


NEGATIVE = ("float[N,5] x", "float[N,5] y", "y = Neg (x)")


class Slow(Engine):
    """An engine whose runs take so long alone, and so much longer for each further record.

    By a clock of its own, `now`, which goes on with its runs.
    """

    def __init__(self, hosted: Hosted, limit: int, alone: float, further: float) -> None:
        super().__init__(open_session(hosted, CPU, 1), hosted, limit, clock=lambda: self.now)
        self.alone = alone
        self.further = further
        self.now = 0.0
        self.sizes: list[int] = []

    def run(self, size: int, buffers: Buffers | None = None) -> None:
        self.sizes.append(size)
        self.now += self.alone + self.further * (size - 1)
        super().run(size, buffers)


class Odd(Engine):
    """An engine whose answers in batches of some sizes have another bit, in the row `where`."""

    wrong: frozenset[int] = frozenset()
    where = 0

    def run(self, size: int, buffers: Buffers | None = None) -> None:
        super().run(size, buffers)
        if size in self.wrong and self.where < size:
            row = (buffers or self.buffers).outputs[0].row(self.where)
            row[0] = row[0] ^ 1


class Lone(Slow):
    """A slow engine whose answers to calls alone have a bit that those in batches have not."""

    def run(self, size: int, buffers: Buffers | None = None) -> None:
        super().run(size, buffers)
        if size == 1:
            row = (buffers or self.buffers).outputs[0].row(0)
            row[0] = row[0] ^ 1


def odd(wrong: range, where: int, limit: int = 8) -> Odd:
    hosted = onnx_hosted(*NEGATIVE)
    made = Odd(open_session(hosted, CPU, 1), hosted, limit, clock=time.thread_time)
    made.wrong, made.where = frozenset(wrong), where
    return made


def test_every_size_of_a_quick_model_is_used() -> None:
    plan = probe(engine(onnx_hosted(*NEGATIVE), 8), seconds=2)
    assert plan == Plan(8, (0, 1, 2, 3, 4, 5, 6, 7, 8))
    assert plan.describe() == "sizes 1 to 8, each with the bits of a call alone"


def test_sizes_whose_bits_differ_are_not_used() -> None:
    plan = probe(odd(range(3, 5), where=2), seconds=2)
    assert plan.refused == (3, 4)
    assert plan.size_for == (0, 1, 2, 5, 5, 5, 6, 7, 8)
    assert plan.describe() == "sizes 1 to 2, 5 to 8; not 3 to 4, whose bits differ"


@pytest.mark.parametrize("row", range(8))
def test_a_difference_in_any_row_is_found(row: int) -> None:
    assert probe(odd(range(8, 9), where=row), seconds=2).refused == (8,)


def test_a_difference_that_every_padded_run_has_is_none() -> None:
    # Alone a record differs from every batch, while in a batch all rows are alike.
    plan = probe(Lone(onnx_hosted(*NEGATIVE), 4, 0.002, 0.0), seconds=2)
    assert (plan.limit, plan.size_for, plan.padded) == (4, (0, 4, 4, 4, 4), True)
    assert plan.describe().startswith("every run padded to 4")


def test_a_padded_run_has_the_same_bits_in_every_row() -> None:
    plan = probe(odd(range(2, 9), where=1), seconds=2)
    assert plan.limit == 1
    assert plan.describe() == "one call at a time: in batches its bits differ"


def test_what_the_runtime_does_unlike_is_refused() -> None:
    # ReduceSum over 5 elements adds them in an order that depends on how many rows there are.
    hosted = onnx_hosted(
        "float[N,5] x",
        "float[N] y",
        "a = Constant <value_ints = [1]> () y = ReduceSum <keepdims = 0> (x, a)",
    )
    made = engine(hosted, 8)
    plan = probe(made, seconds=2)
    x = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    for size in plan.sizes:
        made.buffers.inputs[0].records(8)[:] = x
        made.run(size)
        together = made.buffers.outputs[0].records(size)[0].copy()
        if not plan.padded:
            made.run(1)
        assert made.buffers.outputs[0].records(1)[0].tobytes() == together.tobytes()
    assert plan.refused


def test_padding_that_costs_more_than_it_gains_is_not_done() -> None:
    plan = probe(Lone(onnx_hosted(*NEGATIVE), 4, 0.002, 0.006), seconds=0.2)
    assert plan.limit == 1
    assert plan.refused == (2, 4)


def test_a_slow_model_that_gains_nothing_is_not_probed_for_long() -> None:
    slow = Slow(onnx_hosted(*NEGATIVE), 8, 0.15, 0.15)
    plan = probe(slow, seconds=0.05)
    assert slow.now < 1.5
    assert plan.limit == 1
    assert "batches gain little" in plan.describe()


def test_a_model_whose_sizes_can_be_tried_in_a_second_has_its_batches() -> None:
    plan = probe(Slow(onnx_hosted(*NEGATIVE), 8, 0.02, 0.02), seconds=0.05)
    assert plan.sizes == (1, 2, 4, 8)


def test_a_slow_model_that_gains_is_probed() -> None:
    slow = Slow(onnx_hosted(*NEGATIVE), 8, 0.03, 0.0005)
    plan = probe(slow, seconds=0.05)
    assert plan.sizes == (1, 2, 4, 8)
    assert len(slow.sizes) < 25


def test_an_untried_size_is_not_used() -> None:
    slow = Slow(onnx_hosted(*NEGATIVE), 6, 0.005, 0.005)
    plan = probe(slow, seconds=0.5)
    assert set(plan.sizes) <= set(slow.sizes)


def test_doubtful_operators_are_tried_with_more_records() -> None:
    hosted = onnx_hosted(*NEGATIVE)
    hosted.doubtful = True
    slow = Slow(hosted, 4, 0.015, 0.0)
    probe(slow, seconds=0.5)
    assert slow.sizes.count(1) > 48


def test_a_model_that_does_not_run_on_random_records_runs_one_at_a_time() -> None:
    hosted = onnx_hosted(
        "int64[N] i", "float[N] y", "t = Constant <value_floats = [1.0]> () y = Gather (t, i)"
    )
    made = engine(hosted, 4)
    plan = probe(made, seconds=2)
    assert plan == ALONE or plan.limit == 4


def test_a_limit_of_one_needs_no_probe() -> None:
    slow = Slow(onnx_hosted(*NEGATIVE), 1, 0, 0)
    assert probe(slow) == ALONE
    assert len(slow.sizes) <= 5


def test_sizes_that_are_tried() -> None:
    assert candidate_sizes(8, 1e-4) == [2, 3, 4, 5, 6, 7, 8]
    assert candidate_sizes(8, 0.1) == [2, 4, 8]
    assert candidate_sizes(6, 0.1) == [2, 4, 6]
    assert candidate_sizes(2, 1e-4) == [2]
    assert candidate_sizes(100, 1e-4)[-4:] == [48, 56, 64, 100]


def test_calls_are_parted_where_that_is_quicker_than_filling_up() -> None:
    # Each record takes as long as the first: 3 calls are run as 2 and 1, not as 4.
    dear = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}
    assert _part([1, 2, 4, 8], dear) == (0, 1, 2, 2, 4, 4, 4, 4, 8)
    # A batch takes as long as one: they are filled up.
    assert _part([1, 2, 4, 8], dict.fromkeys(dear, 1.0)) == tuple(range(9))
    # 7 are 4 and 3, of which the 3 are filled up; what fits is never parted.
    assert _part([1, 4, 8], {1: 1.0, 4: 2.0, 8: 4.9}) == (0, 1, 2, 3, 4, 4, 4, 4, 8)


def test_a_plan_runs_all_that_wait_unless_it_says_otherwise() -> None:
    assert Plan(3, (0, 1, 3, 3)).together == (0, 1, 2, 3)
