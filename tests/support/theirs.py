"""Our weights under the names of another implementation, which loads and runs them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array


def renamed(
    weights: Mapping[str, Array], names: Mapping[str, str], *, turned: bool = True
) -> dict[str, Array]:
    """The weights with whole parts of their paths replaced, longest first.

    A matrix `.w` of a linear layer is turned from [in, out] to the [out, in] of torch's Linear.
    """
    pattern = "|".join(re.escape(part) for part in sorted(names, key=len, reverse=True))
    found: dict[str, Array] = {}
    for path, array in weights.items():
        name = re.sub(rf"(?<![^.])({pattern})(?![^.])", lambda match: names[match[0]], path)
        assert name not in found, f"two weights are called {name}"
        found[name] = array.T if turned and path.endswith(".w") and array.ndim == 2 else array
    return found


def load_weights(module: Any, state: Mapping[str, Array]) -> Any:
    """The torch module with exactly these weights, ready to evaluate.

    How many batches its batch norms have seen is no weight, and is left as it is.
    """
    import torch

    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}
    tensors |= {k: v for k, v in module.state_dict().items() if k.endswith("num_batches_tracked")}
    module.load_state_dict(tensors, strict=True)
    return module.eval()
