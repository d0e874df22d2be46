"""The precision of a model's products."""

from typing import Literal, TypeAlias

Precision: TypeAlias = Literal["f32", "bf16"]
