"""Where JAX runs, and what is said where it cannot."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.device import choose_device, enough_memory


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """JAX has its devices already, and keeps its settings."""
    jax.devices()
    platforms = jax.config.jax_platforms
    for name in ("XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    yield
    jax.config.update("jax_platforms", platforms)


def test_the_cpu() -> None:
    assert choose_device("cpu") == "cpu"


def test_what_there_is() -> None:
    assert choose_device("auto") == ("cuda" if jax.default_backend() == "gpu" else "cpu")


def test_no_gpu() -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    with pytest.raises(SexpgpuError) as caught:
        choose_device("cuda")
    assert caught.value.code == "E-DEVICE-001"
    assert caught.value.came
    assert caught.value.help is not None
    assert "--device cpu" in caught.value.help


def test_the_users_flags_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = "--xla_gpu_deterministic_ops=false --xla_dump_to=/tmp/x"
    monkeypatch.setenv("XLA_FLAGS", mine)
    for _ in range(2):
        choose_device("cpu")
    flags = os.environ["XLA_FLAGS"].split()
    assert flags[:2] == mine.split()
    assert len({flag.partition("=")[0] for flag in flags}) == len(flags)


@pytest.mark.parametrize("name", ["jax", "optax"])
def test_a_missing_package_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SexpgpuError) as caught:
        choose_device("cpu")
    assert caught.value.code == "E-RUN-008"
    assert f"`{name}`" in caught.value.message
    assert caught.value.help == "pip install 'sexpgpu[train]'"


def test_what_no_memory_holds() -> None:
    """400 TB: more than a process can name."""
    product = jax.jit(lambda x: jnp.outer(x, x))
    with pytest.raises(SexpgpuError) as caught, enough_memory():
        product(jnp.ones(10**7, jnp.float32)).block_until_ready()
    assert caught.value.code == "E-DEVICE-002"
    assert caught.value.came is not None
    assert caught.value.came.startswith("Out of memory")
    assert caught.value.help is not None
    assert ":accumulate" in caught.value.help


def test_other_faults_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="INTERNAL"), enough_memory():
        raise RuntimeError("INTERNAL: a fault")
