"""Hosting a model: the engine, the socket, and the clients.

`load` gives a model inside the caller's own process, `Client` and `AsyncClient` talk to a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sexpgpu.serve.aio import AsyncClient
    from sexpgpu.serve.client import Client
    from sexpgpu.serve.library import Model, load

__all__ = ["AsyncClient", "Client", "Model", "load"]

_MODULES = {"AsyncClient": "aio", "Client": "client", "Model": "library", "load": "library"}


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that a client does not load ONNX Runtime."""
    if name not in _MODULES:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"sexpgpu.serve.{_MODULES[name]}"), name)
