"""Where JAX runs; asked for before anything else of JAX is used."""

from __future__ import annotations

import os
from typing import Any

from sexpgpu.schemas.errors import SexpgpuError

_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def choose_device(wanted: str) -> str:
    """Makes JAX run on `auto`, `cpu` or `cuda`; says where it does, `cpu` or `cuda`.

    On a GPU every operation is made deterministic.  Raises E-RUN-008 where JAX is not installed,
    E-DEVICE-001 where it cannot use the GPU.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    flags = os.environ.get("XLA_FLAGS", "")
    if _DETERMINISTIC.partition("=")[0] not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_DETERMINISTIC}".strip()
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
