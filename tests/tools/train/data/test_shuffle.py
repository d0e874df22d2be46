"""The order of records: permutations, the same from wherever they are asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexpgpu.tools.train.data.shuffle import Shuffle

COUNTS = [1, 2, 3, 4, 5, 7, 64, 1000, 1023, 1024, 1025, 1500, 2048, 2049, 65_536, 70_001]


@pytest.mark.parametrize("count", COUNTS)
def test_each_epoch_is_a_permutation(count: int) -> None:
    epochs = Shuffle(count, 7).indices(0, 3 * count).reshape(3, count)
    assert epochs.dtype == np.int64
    for epoch in epochs:
        assert np.array_equal(np.sort(epoch), np.arange(count))


@pytest.mark.parametrize("count", [c for c in COUNTS if c > 20])
def test_epochs_and_seeds_differ(count: int) -> None:
    first, second = Shuffle(count, 7).indices(0, 2 * count).reshape(2, count)
    other = Shuffle(count, 8).indices(0, count)
    for a, b in ((first, second), (first, other), (first, np.arange(count))):
        # Two random permutations agree in one place on average.
        assert (a == b).sum() < 10


@settings(max_examples=25)
@given(
    count=st.integers(1, 3000),
    seed=st.integers(0, 2**70),
    start=st.integers(0, 20_000),
    number=st.integers(1, 300),
)
def test_any_part_is_that_of_the_whole(count: int, seed: int, start: int, number: int) -> None:
    order = Shuffle(count, seed)
    alone = np.concatenate([order.indices(start + n, 1) for n in range(min(number, 40))])
    assert np.array_equal(order.indices(start, number)[:40], alone)


def test_a_great_many_records() -> None:
    order = Shuffle(2**40 + 1, 0)
    part = order.indices(2**41 - 50, 200)
    assert part.min() >= 0
    assert part.max() <= 2**40
    assert len(np.unique(part)) == 200


def test_the_order_is_that_of_every_version() -> None:
    """A checkpoint of today is resumed by a later version: these numbers must not change."""
    assert Shuffle(3, 0).indices(0, 9).tolist() == [1, 2, 0, 0, 1, 2, 2, 1, 0]
    assert Shuffle(1025, 0).indices(0, 5).tolist() == [106, 453, 802, 269, 828]
    assert Shuffle(10**9, 2**64 + 5).indices(10**9 - 2, 4).tolist() == [
        742990383,
        734217682,
        109336305,
        398860927,
    ]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_order_of_few_is_as_likely(count: int) -> None:
    orders = list(itertools.permutations(range(count)))
    epochs = Shuffle(count, 1).indices(0, 12_000 * count).reshape(-1, count)
    seen = np.array([(epochs == order).all(1).sum() for order in orders])
    expected = 12_000 / len(orders)
    # Chi-square with at most 23 degrees of freedom: over 58 in one of 10,000 cases.
    assert ((seen - expected) ** 2 / expected).sum() < 58


def test_places_of_many_are_as_likely() -> None:
    """Where a record comes in an epoch, and which comes after it, tell nothing."""
    count, epochs = 1500, 200
    orders = Shuffle(count, 3).indices(0, count * epochs).reshape(epochs, count)
    cells = np.histogram2d(np.tile(np.arange(count), epochs), orders.reshape(-1), bins=(10, 10))[0]
    expected = count * epochs / 100
    # 81 degrees of freedom: over 140 in fewer than one of 10,000 cases.
    assert ((cells - expected) ** 2 / expected).sum() < 140
    steps = np.diff(orders, axis=1) % count
    counts = np.bincount(steps.reshape(-1), minlength=count)[1:]
    mean = counts.mean()
    degrees = count - 2
    assert ((counts - mean) ** 2 / mean).sum() < degrees + 5 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("count", [0, 2**63])
def test_numbers_that_have_no_order(count: int) -> None:
    with pytest.raises(ValueError, match="cannot be put into an order"):
        Shuffle(count, 0)
