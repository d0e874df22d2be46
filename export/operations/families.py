"""Imports the families, in the order in which the reference lists them."""

from sexpgpu.export.operations import (
    creation,
    elementwise,
)

__all__ = ["creation", "elementwise"]
