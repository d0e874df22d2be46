"""What the prelude makes of positions and distances, against NumPy and transformers."""

from __future__ import annotations

import numpy as np
import pytest

from support.layers import BATCH, Layer
from support.programs import value_of


@pytest.mark.parametrize("inclusive", [False, True])
def test_sinusoids(inclusive: bool) -> None:
    option = str(inclusive).lower()
    layer = Layer(f"(fn (x) (sinusoids x 6 :base 100 :inclusive {option}))", "x (list f32 5)")
    speeds = 100.0 ** (-np.arange(3) / (2 if inclusive else 3))
    angles = layer.x[..., None] * speeds
    layer.is_close_to(np.concatenate([np.sin(angles), np.cos(angles)], -1))


def test_interleaved_sinusoids() -> None:
    """As the paper has them: even places are sines, the next ones cosines of the same angle."""
    layer = Layer("(fn (x) (sinusoids x 6 :interleaved true))", "x (list f32)")
    wanted = np.zeros((BATCH, 6))
    for i in range(3):
        angle = layer.x / 10000 ** (2 * i / 6)
        wanted[:, 2 * i], wanted[:, 2 * i + 1] = np.sin(angle), np.cos(angle)
    layer.is_close_to(wanted)


def test_sinusoids_of_two_numbers() -> None:
    layer = Layer("(fn (x) (sinusoids x 2 :inclusive true))", "x (list f32)")
    layer.is_close_to(np.stack([np.sin(layer.x), np.cos(layer.x)], -1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (32, 256), (64, 128), (12, 100), (4, 8)])
def test_buckets_of_distances_are_those_of_transformers(
    buckets: int, reach: int, causal: bool
) -> None:
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    options = f":buckets {buckets} :reach {reach} :causal {str(causal).lower()}"
    found = value_of(f"(for (d (range -600 601)) (distance-bucket d {options}))")
    expected = t5.T5Attention._relative_position_bucket(
        torch.arange(-600, 601), not causal, buckets, reach
    )
    assert list(found) == expected.tolist()  # type: ignore[call-overload]


@pytest.mark.parametrize("causal", [False, True])
def test_relative_bias(causal: bool) -> None:
    """A number for each distance, whose bucket is found here by its bounds."""
    expression = f"(relative-bias 3 :buckets 8 :reach 16 :causal {str(causal).lower()})"
    layer = Layer(expression, "x (list f32 3 20 30)", call="(+ x (m 20 30))")
    # of 8 buckets, 4 to each side: 0, 1, from 2 on, and from 2·√8 on; of 8 to one: 4·2^(k/2)
    bounds = [0, 1, 2, 3, 4, 6, 8, 12] if causal else [0, 1, 2, 6]
    wanted = np.zeros((3, 20, 30))
    for query in range(20):
        for key in range(30):
            away = max(0, query - key) if causal else abs(query - key)
            bucket = sum(away >= bound for bound in bounds) - 1
            bucket += 4 if not causal and key > query else 0
            wanted[:, query, key] = layer["w"][bucket]
    layer.is_close_to(layer.x + wanted)


@pytest.mark.parametrize("heads", [1, 2, 8, 12])
def test_alibi(heads: int) -> None:
    """The paper's slopes, which BLOOM in transformers has too, for distances to either side."""
    layer = Layer(f"(fn (x) (+ x (alibi {heads} 5)))", f"x (list f32 {heads} 5 5)")
    power = 2 ** int(np.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    distances = np.abs(np.arange(5)[:, None] - np.arange(5))
    layer.is_close_to(layer.x - np.array(slopes)[:, None, None] * distances)


def test_slopes_of_alibi_are_those_of_bloom() -> None:
    torch = pytest.importorskip("torch")
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for heads in (4, 6, 16, 20):
        found = np.asarray(value_of(f"(slice (alibi {heads} 2) :axis 1 :from 1)"))[:, 0, 0]
        expected = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        np.testing.assert_allclose(-found, expected, rtol=1e-6)
