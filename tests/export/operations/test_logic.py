from __future__ import annotations

import operator

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array, DType
from support.harness import check

BITWISE = {
    "bitwise-and": operator.and_,
    "bitwise-or": operator.or_,
    "bitwise-xor": operator.xor,
}
INTEGERS = [DType.I32, DType.I64]


def integers(dtype: DType) -> Array:
    limits = np.iinfo(dtype.numpy)
    return np.array([limits.min, limits.min + 1, -6, -1, 0, 1, 5, limits.max], dtype.numpy)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("logical-and", [False, False, False, True]),
        ("logical-or", [False, True, True, True]),
        ("logical-xor", [False, True, True, False]),
    ],
)
def test_truth_tables(name: str, want: list[bool]) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert check(name, [a, b])[0].tolist() == want
    assert check("logical-not", [a])[0].tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", BITWISE)
def test_bits_as_python_has_them(name: str, dtype: DType) -> None:
    x = integers(dtype)
    (result,) = check(name, [x[:, None], x])
    assert result.tolist() == [[BITWISE[name](int(a), int(b)) for b in x] for a in x]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_not_of_bits(dtype: DType) -> None:
    x = integers(dtype)
    assert check("bitwise-not", [x])[0].tolist() == [~int(a) for a in x]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_every_count(dtype: DType) -> None:
    bits = 8 * dtype.itemsize
    x, count = integers(dtype), np.arange(bits, dtype=dtype.numpy)
    (left,) = check("shift-left", [x[:, None], count])
    (right,) = check("shift-right", [x[:, None], count])
    for i, a in enumerate(x.tolist()):
        for n in range(bits):
            assert (int(left[i, n]) - (a << n)) % 2**bits == 0
            assert right[i, n] == a >> n


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shift_1_counts_beyond_the_bits_move_every_bit_out(dtype: DType) -> None:
    # shift-left 1, shift-right 1
    bits, limits = 8 * dtype.itemsize, np.iinfo(dtype.numpy)
    x = integers(dtype)
    count = np.array([bits, bits + 1, -1, limits.min, limits.max], dtype.numpy)
    (left,) = check("shift-left", [x[:, None], count])
    (right,) = check("shift-right", [x[:, None], count])
    assert (left == 0).all()
    assert right.tolist() == [[-1 if a < 0 else 0] * count.size for a in x]
