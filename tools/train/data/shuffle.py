"""An endless order of records in which every epoch is a permutation, computed from the position.

Nothing is kept: a run that resumes at any step asks for the same positions and gets the same
records, and a billion records take no memory.
"""

from __future__ import annotations

import hashlib

import numpy as np

from sexpgpu.export.graph.types import Array

_ROUNDS = 8
_SORTED_UP_TO = 1024
"""A network over few indices reaches only some of their orders; so few are sorted instead."""

_MASK = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Shuffle:
    """The order of `count` records under a seed.

    An epoch of many records is a format-preserving cipher of the index: an alternating Feistel
    network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
    functions", 1988) over the next power of two, walked along its cycle until it is an index
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).  An epoch of few is sorted
    by a hash.  Numbers are hashed as splitmix64 does (Steele, Lea and Flood, "Fast splittable
    pseudorandom number generators", 2014), so that an order is the same in every version.
    """

    def __init__(self, count: int, seed: int) -> None:
        if not 0 < count <= 2**62:
            raise ValueError(f"{count} records cannot be put into an order")
        self.count = count
        digest = hashlib.sha256(str(seed).encode()).digest()
        self._key = int.from_bytes(digest[:8], "little")
        bits = (count - 1).bit_length()
        self._right = np.uint64(bits // 2)
        self._left_mask = np.uint64((1 << (bits - bits // 2)) - 1)
        self._right_mask = np.uint64((1 << (bits // 2)) - 1)

    def indices(self, start: int, number: int) -> Array:
        """The records at the positions from `start` on, `number` of them: i64, 0 to count - 1."""
        first, last = start // self.count, (start + number - 1) // self.count
        if self.count <= _SORTED_UP_TO:
            order = self._sorted_epochs(first, last + 1 - first).reshape(-1)
            return order[start - first * self.count :][:number]
        found = np.empty(number, np.int64)
        for epoch in range(first, last + 1):
            begin = max(start, epoch * self.count)
            end = min(start + number, (epoch + 1) * self.count)
            within = np.arange(begin - epoch * self.count, end - epoch * self.count)
            found[begin - start : end - start] = self._permuted(epoch, within.astype(np.uint64))
        return found

    def _sorted_epochs(self, first: int, number: int) -> Array:
        """Whole epochs, one a row."""
        keys = np.array([self._epoch_key(first + n) for n in range(number)], np.uint64)
        hashes = _mixed(keys[:, None] + np.arange(self.count, dtype=np.uint64) * _GOLDEN)
        return np.argsort(hashes, axis=1, kind="stable").astype(np.int64)

    def _permuted(self, epoch: int, values: Array) -> Array:
        """Where an epoch's permutation takes these indices."""
        rounds = np.arange(_ROUNDS, dtype=np.uint64)[:, None]
        keys = _mixed(np.uint64(self._epoch_key(epoch)) + rounds * _GOLDEN)
        values = self._network(values, keys)
        # Walking on from what lies outside stays a permutation of what lies inside.
        outside = np.flatnonzero(values >= self.count)
        while outside.size:
            values[outside] = self._network(values[outside], keys)
            outside = outside[values[outside] >= self.count]
        return values.astype(np.int64)

    def _network(self, values: Array, keys: Array) -> Array:
        left, right = values >> self._right, values & self._right_mask
        for key in range(0, _ROUNDS, 2):
            left = left ^ (_mixed(right + keys[key]) & self._left_mask)
            right = right ^ (_mixed(left + keys[key + 1]) & self._right_mask)
        found: Array = left << self._right | right
        return found

    def _epoch_key(self, epoch: int) -> int:
        (key,) = _mixed(np.array([(self._key + epoch * int(_GOLDEN)) & _MASK], np.uint64))
        return int(key)


def _mixed(values: Array) -> Array:
    """A bijection of u64 that changes about half of the bits for each bit changed."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = values ^ (values >> np.uint64(31))
    return mixed
