"""The prelude: layers that people expect, written in the language itself, under `layers/`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from sexpgpu.export.language.data import Datum
from sexpgpu.export.language.reader import read_source
from sexpgpu.schemas.errors import Source

#: The files of `layers/`, in the order in which they are evaluated and documented.
LAYER_FILES = (
    "tensor",
    "linear",
    "activation",
    "normalization",
    "position",
    "attention",
    "transformer",
    "mixture",
    "convolution",
    "vision",
    "diffusion",
    "recurrence",
    "sequence",
    "state-space",
    "graph",
    "recommendation",
    "signal",
    "sampling",
    "loss",
)


@lru_cache(maxsize=1)
def prelude_sources() -> Mapping[str, Source]:
    """The text of each file by its name."""
    folder = files("sexpgpu.export.language").joinpath("layers")
    return {
        name: Source(f"layers/{name}.sx", folder.joinpath(f"{name}.sx").read_text("utf-8"), True)
        for name in LAYER_FILES
    }


@lru_cache(maxsize=1)
def prelude_data() -> tuple[Datum, ...]:
    """Every form of the prelude."""
    return tuple(datum for source in prelude_sources().values() for datum in read_source(source))
