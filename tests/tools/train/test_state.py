"""The optimizer's state as named tensors: bit for bit there and back, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexpgpu.export.language.recipes import RECIPES
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import DTYPES
from sexpgpu.schemas.tensor_file import MappedTensors, write_tensors
from sexpgpu.tools.train.optimizer import make_optimizer
from sexpgpu.tools.train.state import flatten_state, restore_state
from support.recipes import run_of

PARAMETERS = {"blocks.0.w": (2, 3), "blocks.0.b": (3,), "large": (128, 130)}


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Moments(NamedTuple):
    count: Any
    mu: Any


class Nothing(NamedTuple):
    pass


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Any bits of any dtype: signalling NaNs too."""
    dtype = DTYPES[draw(st.sampled_from(list(DTYPES)))]
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = int(np.prod(shape)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype).reshape(shape)


LEAVES = st.one_of(
    arrays(),
    arrays().map(jnp.array),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.none(),
)
KEYS = st.text("abw-/ ü0", max_size=4)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(KEYS, inner, max_size=3),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Moments, inner, inner),
        st.just(Nothing()),
    ),
    max_leaves=8,
)


def bits(tree: Any) -> list[tuple[type, str, tuple[int, ...], bytes]]:
    leaves = [(leaf, np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
    return [(type(leaf), str(a.dtype), a.shape, a.tobytes()) for leaf, a in leaves]


@given(TREES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_comes_back(tree: Any) -> None:
    stored = flatten_state(tree)
    assert all(array.dtype in DTYPES.values() for array in stored.values())
    found = restore_state(tree, stored)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    assert bits(found) == bits(tree)


def optimizer_state(recipe: str) -> Any:
    optimizer = make_optimizer(run_of(f":optimizer {recipe} :schedule (cosine) :clip 1"))
    rng = np.random.default_rng(1)
    parameters = {n: jnp.array(rng.normal(size=s), jnp.float32) for n, s in PARAMETERS.items()}
    state = optimizer.init(parameters)
    for _ in range(3):
        _, state = optimizer.update(parameters, state, parameters)
    return state


@pytest.mark.parametrize("name", [name for name, kind, _ in RECIPES if kind == "optimizer"])
def test_every_optimizer_comes_back_from_a_file(name: str, tmp_path: Path) -> None:
    state = optimizer_state(f"({name})")
    stored = flatten_state(state)
    path = tmp_path / "optimizer.safetensors"
    names = {dtype: name for name, dtype in DTYPES.items()}
    with path.open("wb") as file:
        announced = [(name, names[a.dtype], a.shape) for name, a in stored.items()]
        write_tensors(file, announced, stored.__getitem__)
    read = MappedTensors(path)
    found = restore_state(state, {name: read.tensor(name) for name in read})
    assert jax.tree.structure(found) == jax.tree.structure(state)
    assert bits(found) == bits(state)


def test_the_names_are_those_of_the_parameters() -> None:
    assert list(flatten_state(optimizer_state("(adamw)"))) == [
        "adam.count",
        "adam.mu.blocks.0.b",
        "adam.mu.blocks.0.w",
        "adam.mu.large",
        "adam.nu.blocks.0.b",
        "adam.nu.blocks.0.w",
        "adam.nu.large",
        "rate.count",
    ]
    assert "momentum.trace.blocks.0.w" in flatten_state(optimizer_state("(momentum)"))
    assert list(flatten_state(optimizer_state("(sgd)"))) == ["rate.count"]
    lion = {name.rsplit(".blocks")[0] for name in flatten_state(optimizer_state("(lion)"))}
    assert lion == {"lion.count", "lion.mu", "lion.mu.large", "rate.count"}
    factored = flatten_state(optimizer_state("(adafactor)"))
    assert factored["adafactor.v_row.large"].shape == (128,)
    assert factored["adafactor.v.blocks.0.w"].shape == (2, 3)


def test_fields_keys_and_indices_are_joined_by_dots() -> None:
    tree = {"a": Moments(1, [2.5, (True,)]), "b": None, "c": Nothing()}
    stored = flatten_state(tree)
    assert {name: array.dtype.name for name, array in stored.items()} == {
        "a.count": "int64",
        "a.mu.0": "float64",
        "a.mu.1.0": "bool",
    }
    assert flatten_state(jnp.ones(2)).keys() == {""}


def test_what_is_stored_is_no_view_of_the_state() -> None:
    state = {"w": jnp.zeros(3), "v": np.zeros(3)}
    stored = flatten_state(state)
    stored["w"][0] = stored["v"][0] = 1.0
    assert state["w"][0] == state["v"][0] == 0.0
    stored["w"] = aligned(stored["w"])
    restored = restore_state(state, stored)
    stored["w"][1] = stored["v"][1] = 1.0
    assert restored["w"].tolist() == restored["v"].tolist() == [1.0, 0.0, 0.0]


def aligned(array: np.ndarray) -> np.ndarray:
    """Where JAX would take the memory for its own, if it were asked for no copy."""
    room = np.zeros(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def test_a_template_may_be_of_types_alone() -> None:
    state = optimizer_state("(adam)")
    template = jax.eval_shape(lambda: state)
    found = restore_state(template, flatten_state(state))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found))
    assert bits(found) == bits(state)


def test_names_must_differ() -> None:
    with pytest.raises(ValueError, match=r"two leaves of a state are named 'a\.b'"):
        flatten_state({"a.b": 1, "a": {"b": 2}})


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (jax.random.key(0), "seed is a key of random numbers"),
        (np.zeros(2, np.complex64), "seed is of complex64"),
        (np.zeros(2, ml_dtypes.int4), "seed is of int4"),
        ("text", "seed is of <U4"),
        (2**70, "seed is of object"),
    ],
    ids=["key", "complex", "int4", "text", "large"],
)
def test_what_no_file_holds(leaf: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        flatten_state({"seed": leaf})


def refused(template: Any, arrays: dict[str, np.ndarray]) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        restore_state(template, arrays, place="run/step-00000007/optimizer.safetensors")
    assert caught.value.code == "E-RUN-002"
    assert "--> run/step-00000007/optimizer.safetensors" in caught.value.render()
    return caught.value


TEMPLATE = {"adam": Moments(jnp.zeros((), jnp.int32), {"w": jnp.zeros((2, 3), jnp.float32)})}


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        ({"adam.mu.w": None}, ["missing: adam.mu.w [2, 3] float32"]),
        (
            {"adam.mu.w": np.zeros((3, 2), np.float32)},
            ["of another shape or dtype: adam.mu.w [3, 2] float32, not [2, 3] float32"],
        ),
        (
            {"adam.count": np.zeros((), np.int64)},
            ["of another shape or dtype: adam.count [] int64, not [] int32"],
        ),
        (
            {"lion.mu.w": np.zeros(4, np.float32)},
            ["not known to this optimizer: lion.mu.w [4] float32"],
        ),
        (
            {"adam.mu.w": None, "adam.mu.v": np.zeros((2, 3), np.float32)},
            [
                "missing: adam.mu.w [2, 3] float32",
                "not known to this optimizer: adam.mu.v [2, 3] float32",
            ],
        ),
    ],
)
def test_what_does_not_fit(change: dict[str, np.ndarray | None], notes: Sequence[str]) -> None:
    stored = {**flatten_state(TEMPLATE), **change}
    arrays = {name: array for name, array in stored.items() if array is not None}
    assert refused(TEMPLATE, arrays).notes == notes


def test_a_long_list_is_cut() -> None:
    template = {"mu": {str(index): jnp.zeros(1, jnp.float32) for index in range(9)}}
    (note,) = refused(template, {}).notes
    assert note.startswith("missing: mu.0 [1] float32; mu.1 [1] float32; ")
    assert note.endswith("mu.4 [1] float32; 4 more")


def test_another_optimizer_is_told_apart() -> None:
    error = refused(optimizer_state("(adamw)"), flatten_state(optimizer_state("(lion)")))
    assert [note.split(":")[0] for note in error.notes] == [
        "missing",
        "not known to this optimizer",
    ]
    assert error.help is not None
    assert "--fresh" in error.help


def test_numbers_are_checked_as_arrays_are() -> None:
    assert restore_state({"n": 1}, {"n": np.array(7)}) == {"n": 7}
    refused({"n": 1}, {"n": np.array(7.0)})
    refused({"n": 1}, {"n": np.array([7])})
