"""EfficientNet-Lite0: its logits are those of its own package by the same file."""

from __future__ import annotations

import sys
from copy import deepcopy
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.real import relative_difference
from support.recognised import Recognised

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    weights = str(fetch_model("efficientnet-lite0")["model.pth"])
    return Recognised("efficientnet-lite0", tmp_path_factory.mktemp("lite"), weights=weights)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The package's own class, which pads by the size that it is made for."""
    files = fetch_model("efficientnet-lite")
    name, start = "efficientnet_lite_pytorch", files["__init__.py"]
    spec = spec_from_file_location(name, start, submodule_search_locations=[str(start.parent)])
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(package)
    model = package.EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(fetch_model("efficientnet-lite0")["model.pth"], weights_only=True)
    model.load_state_dict(weights)
    return model.eval()


@pytest.fixture(scope="module")
def images() -> Array:
    """Waves of colour, a disc, noise, and black."""
    y, x = np.mgrid[-1:1:224j, -1:1:224j]
    waves = np.stack([np.sin(9 * x + 4 * y), np.cos(7 * y), np.sin(5 * x * y)])
    disc = np.where(x * x + y * y < 0.4, 0.9, -0.6) * np.array([1, -0.5, 0.2])[:, None, None]
    noise = np.random.default_rng(5).uniform(-1, 1, (3, 224, 224))
    return np.stack([waves, disc, noise, np.full_like(noise, -1)]).astype(np.float32)


def test_logits_equal_the_package(
    ours: Recognised, theirs: Any, images: Array, record_property: Any
) -> None:
    with torch.no_grad():
        expected = theirs(torch.from_numpy(images)).numpy()
    # A net that sees nothing would call all of them the same.
    assert len(set(expected.argmax(-1))) > 1
    found = ours.run({"inputs": images})["output"]
    differences = [relative_difference(a, b) for a, b in zip(found, expected, strict=True)]
    record_property("largest relative differences", differences)
    assert max(differences) < 1e-5
    np.testing.assert_array_equal(found.argmax(-1), expected.argmax(-1))


def test_products_in_bf16(ours: Recognised, theirs: Any, images: Array) -> None:
    """So small a net is far from itself in f32; torch's is as far, where it rounds as much."""
    ours.check_bf16({"inputs": images}, at_most=0.25)
    rounded = deepcopy(theirs)
    for layer in rounded.modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            layer.weight.data = to_bf16(layer.weight.data)
            layer.register_forward_pre_hook(lambda _, given: (to_bf16(given[0]),))
    with torch.no_grad():
        expected = rounded(torch.from_numpy(images)).numpy()
    found = ours.run({"inputs": images}, precision="bf16")["output"]
    assert relative_difference(found, expected) < 0.01


def to_bf16(tensor: Any) -> Any:
    return tensor.to(torch.bfloat16).float()


def test_every_weight_of_the_file_is_read(ours: Recognised, theirs: Any) -> None:
    counted = [w for name, w in theirs.state_dict().items() if "num_batches" not in name]
    assert sum(w.size for w in ours.weights.values()) == sum(w.numel() for w in counted)
