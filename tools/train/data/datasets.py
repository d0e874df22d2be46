"""A dataset from a loader: one table of kinds."""

from __future__ import annotations

from collections.abc import Callable

from sexpgpu.export.language.loaders import Loader
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.arrays import open_arrays
from sexpgpu.tools.train.data.dataset import Dataset
from sexpgpu.tools.train.data.images import open_images
from sexpgpu.tools.train.data.table import open_table
from sexpgpu.tools.train.data.text import open_text


def open_dataset(loader: Loader) -> Dataset:
    """The data of a loader; a relative path starts at the current directory.

    Raises E-DATA-002 to E-DATA-011, of which E-DATA-009 where the loader has none.
    """
    return _KINDS[loader.kind](loader)


def _no_data(loader: Loader) -> Dataset:
    names = " ".join(f":{name}" for name in loader.fields)
    raise SexpgpuError(
        "E-DATA-009",
        "the loader says what a record has, and no data",
        came=f"(fields {names})",
        expected="a loader with a file: text, arrays, csv or images",
        help='give `defrun` such a `:train`, e.g. (arrays "train.npz")',
    )


_KINDS: dict[str, Callable[[Loader], Dataset]] = {
    "text": open_text,
    "arrays": open_arrays,
    "csv": open_table,
    "images": open_images,
    "fields": _no_data,
}
