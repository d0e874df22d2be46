"""Where JAX runs; asked for before anything else of JAX is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sexpgpu.schemas.errors import SexpgpuError

#: On a GPU the same bits each time; and on any device what is rounded to bf16 stays rounded.
_FLAGS = ("--xla_gpu_deterministic_ops=true", "--xla_allow_excess_precision=false")


def choose_device(wanted: str) -> str:
    """Makes JAX run on `auto`, `cpu` or `cuda`; says where it does, `cpu` or `cuda`.

    On a GPU every operation is made deterministic.  Raises E-RUN-008 where JAX is not installed,
    E-DEVICE-001 where it cannot use the GPU.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    given = os.environ.get("XLA_FLAGS", "")
    ours = [flag for flag in _FLAGS if flag.partition("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([*given.split(), *ours])
    jax = _import_jax()
    if wanted != "auto":
        jax.config.update("jax_platforms", wanted)
    try:
        # By its name, for where JAX runs already, the setting comes too late.
        platform: str = jax.devices(None if wanted == "auto" else wanted)[0].platform
    # It asserts that it has found one.
    except (RuntimeError, AssertionError) as error:
        raise SexpgpuError(
            "E-DEVICE-001",
            f"JAX cannot run on {'CUDA' if wanted == 'cuda' else wanted} here",
            came=str(error).split("\n")[0] or "it has found no such device",
            help="pip install 'jax[cuda12]', or --device cpu",
        ) from None
    return "cuda" if platform == "gpu" else platform


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raises E-DEVICE-002 where the device has no room for what is computed in here."""
    try:
        yield
    except RuntimeError as error:
        # XLA's own errors have a word for what they are about, and no type.
        if not str(error).startswith("RESOURCE_EXHAUSTED"):
            raise
        raise SexpgpuError(
            "E-DEVICE-002",
            "the device has not enough memory",
            came=str(error).split("\n")[0].removeprefix("RESOURCE_EXHAUSTED: "),
            help="a smaller `:batch`, with `:accumulate` for as many records in a step",
        ) from None


def _import_jax() -> Any:
    try:
        import jax
        import optax  # noqa: F401
    except ImportError as error:
        raise SexpgpuError(
            "E-RUN-008",
            f"training needs the package `{error.name}`, which is not installed",
            help="pip install 'sexpgpu[train]'",
        ) from None
    return jax
