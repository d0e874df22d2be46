"""Batches ahead of the device: which, when errors come, and what is left behind."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, Batch, DType, TensorType
from sexpgpu.tools.train.data.dataset import Dataset
from sexpgpu.tools.train.data.feed import Feed
from sexpgpu.tools.train.data.shuffle import Shuffle


class Numbers(Dataset):
    """Records that are their own numbers; the batch numbered `fails` is an error."""

    def __init__(self, count: int, fails: int | None = None) -> None:
        self.count = count
        self.fields = {"n": TensorType(DType.I64, (Batch(),))}
        self.asked = 0
        self.fails = fails

    def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
        if self.asked == self.fails:
            raise ValueError("a broken record")
        self.asked += 1
        return {"n": np.asarray(indices, np.int64)}

    def fingerprint(self) -> str:
        return "numbers"


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "sexpgpu-feed"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> object:
    yield
    gc.collect()
    assert threads() == []


def taken(feed: Feed, number: int) -> list[list[int]]:
    return [batch["n"].tolist() for batch in itertools.islice(feed, number)]


def test_steps_are_the_order_s_positions() -> None:
    with Feed(Numbers(10), 4, seed=3) as feed:
        found = taken(feed, 6)
    assert found == Shuffle(10, 3).indices(0, 24).reshape(6, 4).tolist()


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_resumed_run_goes_on_as_it_would_have(step: int) -> None:
    with Feed(Numbers(7), 3, seed=0, start_step=step) as feed:
        found = taken(feed, 2)
    assert found == Shuffle(7, 0).indices(step * 3, 6).reshape(2, 3).tolist()


def test_a_batch_larger_than_the_data() -> None:
    with Feed(Numbers(3), 8, seed=0) as feed:
        ((*batch,),) = taken(feed, 1)
    assert np.bincount(batch).tolist() in ([3, 3, 2], [3, 2, 3], [2, 3, 3])


def test_a_feed_ends_with_the_run() -> None:
    with Feed(Numbers(5), 2, seed=0, start_step=2, steps=4) as feed:
        assert len(list(feed)) == 2
        assert next(feed, None) is None


def test_an_evaluation_is_in_order_and_whole() -> None:
    assert list_of(Feed.in_order(Numbers(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list_of(Feed.in_order(Numbers(7), 3, batches=2)) == [[0, 1, 2], [3, 4, 5]]
    assert list_of(Feed.in_order(Numbers(2), 3, batches=9)) == [[0, 1]]


def list_of(feed: Feed) -> list[list[int]]:
    with feed:
        return taken(feed, 100)


def test_it_runs_ahead_by_its_depth_and_no_more() -> None:
    data = Numbers(100)
    with Feed(data, 1, seed=0, depth=3) as feed:
        wait_until(lambda: data.asked == 4)
        time.sleep(0.05)
        assert data.asked == 4  # three ready, and one that waits for a place
        next(feed)
        wait_until(lambda: data.asked == 5)


def wait_until(condition: object) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.001)


def test_an_error_comes_in_the_place_of_its_batch() -> None:
    data = Numbers(100, fails=2)
    with Feed(data, 1, seed=0, depth=8) as feed:
        wait_until(lambda: not threads())
        assert len(taken(feed, 2)) == 2
        for _ in range(2):
            with pytest.raises(ValueError, match="a broken record"):
                next(feed)


def test_an_error_reaches_one_who_waits() -> None:
    class Slow(Numbers):
        def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
            time.sleep(0.05)
            raise MemoryError

    with Feed(Slow(3), 1, seed=0) as feed, pytest.raises(MemoryError):
        next(feed)


def test_closing_is_prompt_and_can_be_done_twice() -> None:
    feed = Feed(Numbers(10), 1, seed=0)
    next(feed)
    begin = time.monotonic()
    feed.close()
    feed.close()
    assert time.monotonic() - begin < 5
    assert threads() == []
    assert next(feed, None) is None


def test_an_interrupt_in_the_loop_leaves_no_thread() -> None:
    def interrupted() -> None:
        with Feed(Numbers(10), 1, seed=0) as feed:
            for _ in feed:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert threads() == []


def test_a_feed_that_is_dropped_ends() -> None:
    feed = Feed(Numbers(10), 1, seed=0)
    next(feed)
    assert len(threads()) == 1
    del feed
    gc.collect()
    assert threads() == []
