"""Imports the families, in the order in which the reference lists them."""

from sexpgpu.export.operations import (
    elementwise,
)

__all__ = ["elementwise"]
