"""What an operation is in JAX: a function of arrays, put into a table under the operation's name.

The modules beside this one hold the functions, in the families of the operations themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import TensorType
from sexpgpu.export.operations.operation import Operation


@dataclass(frozen=True, slots=True)
class Application:
    """An operation applied: its attributes, in which no dimension is symbolic, the types of its
    results, of known shapes, and the key of what it draws.

    Unless the operation `moves_data`, bf16 never comes to a rule: operands were widened to f32,
    `results` say f32, and what is returned is rounded.  `narrow` says that operands were bf16.
    """

    operation: Operation
    attributes: Attributes
    results: tuple[TensorType, ...]
    key: jax.Array
    narrow: bool = False

    def named(self, inputs: Sequence[jax.Array]) -> dict[str, jax.Array]:
        """The inputs by the names of their operands."""
        return self.operation.named(inputs, self.attributes)


# 64-bit dtypes mean what they say.
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Rule: TypeAlias = Callable[[Application, Sequence[jax.Array]], Sequence[jax.Array]]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Makes the function the rule of the operations with these names."""

    def put(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"the operation {name} has two rules")
            RULES[name] = function
        return function

    return put


def all_rules() -> Mapping[str, Rule]:
    """Every operation's rule by its name."""
    # The families put their rules into the table when they are imported.
    import sexpgpu.tools.train.lowering.families  # noqa: F401

    return RULES
