"""Loaders as a program says them, their data, and what is wrong with it."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.loaders import Loader
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.dataset import Dataset
from sexpgpu.tools.train.data.datasets import open_dataset
from support.programs import value_of


def dataset_of(text: str) -> Dataset:
    """The data of a loader that is written in the language."""
    loader = value_of(text)
    assert isinstance(loader, Loader)
    return open_dataset(loader)


def data_error(text: str, code: str) -> SexpgpuError:
    """The error that opening a loader's data raises, which has this code."""
    with pytest.raises(SexpgpuError) as caught:
        dataset_of(text)
    assert caught.value.code == code
    return caught.value
