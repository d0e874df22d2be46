"""The optimizer's state as named tensors, and back: what optimizer.safetensors holds.

A tensor's name is its way through the state: the fields, keys and indices, joined by dots, so that
Adam's mean of the gradients of `blocks.0.w` is `adam.mu.blocks.0.w`.  Nothing else of a structure
is written down: a state is restored into one that the same optimizer made.  Keys of random numbers
are not stored; a run derives them from its seed and step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import DTYPES

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_SHOWN = 5


def flatten_state(tree: Any) -> dict[str, Array]:
    """Every leaf by its name, as an array of its own: donating the state's buffers is safe.

    Leaves are arrays of the dtypes that safetensors has, and Python's numbers, which become f64,
    i64 and bool.  Raises TypeError for other leaves, ValueError where two come to one name.
    """
    return {name: _stored(name, leaf) for name, leaf in _leaves(tree).items()}


def restore_state(template: Any, arrays: Mapping[str, Array], place: str | None = None) -> Any:
    """The stored state, of the template's structure.

    A leaf is what the template has: an array of NumPy, a number, or an array of JAX, which a
    `jax.ShapeDtypeStruct` stands for too.  The arrays are copied.  Raises E-RUN-002, at `place`,
    where they are not exactly those of the template.
    """
    wanted = _leaves(template)
    _check(wanted, arrays, place)
    made = [_like(leaf, arrays[name]) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(template), made)


def _leaves(tree: Any) -> dict[str, Any]:
    """The leaves by name, in the tree's own order."""
    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if name in found:
            raise ValueError(f"two leaves of a state are named {name!r}")
        found[name] = leaf
    return found


def _stored(name: str, leaf: Any) -> Array:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise TypeError(f"{name} is a key of random numbers, which a run derives from its seed")
    # A view of JAX's memory would change when the buffer is donated.
    array = np.array(leaf)
    if array.dtype not in DTYPES.values():
        raise TypeError(f"{name} is of {array.dtype}, which no safetensors file holds")
    return array


def _like(leaf: Any, array: Array) -> Any:
    if isinstance(leaf, bool | int | float):
        return type(leaf)(array.item())
    if isinstance(leaf, np.generic):
        return array[()]
    return np.array(array) if isinstance(leaf, np.ndarray) else jnp.array(array)


def _check(wanted: Mapping[str, Any], arrays: Mapping[str, Array], place: str | None) -> None:
    """All that does not fit is told at once: together it says which optimizer it was."""
    missing = [f"{name} {_type(leaf)}" for name, leaf in wanted.items() if name not in arrays]
    other = [
        f"{name} {_type(arrays[name])}, not {_type(leaf)}"
        for name, leaf in wanted.items()
        if name in arrays and _type(arrays[name]) != _type(leaf)
    ]
    surplus = [f"{name} {_type(array)}" for name, array in arrays.items() if name not in wanted]
    notes = [
        f"{what}: {_list(names)}"
        for what, names in (
            ("missing", missing),
            ("of another shape or dtype", other),
            ("not known to this optimizer", surplus),
        )
        if names
    ]
    if notes:
        raise SexpgpuError(
            "E-RUN-002",
            "the stored state is not that of the run's optimizer",
            place=place,
            expected=f"{len(wanted)} tensors, as `:optimizer` of `defrun` keeps them",
            help="resume with the optimizer that the checkpoint was written with, "
            "or begin anew with --fresh",
            notes=notes,
        )


def _type(leaf: Any) -> str:
    shaped = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
    return f"[{', '.join(map(str, shaped.shape))}] {shaped.dtype}"


def _list(items: Sequence[str]) -> str:
    left = len(items) - _SHOWN
    return "; ".join(items[:_SHOWN]) + (f"; {left} more" if left > 0 else "")
