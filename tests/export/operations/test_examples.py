"""The example that every operation's entry in the reference shows gives what it shows."""

from __future__ import annotations

import pytest

from sexpgpu.export.operations.operation import Operation, all_operations
from support.expressions import shown_value


@pytest.mark.parametrize("operation", all_operations().values(), ids=lambda o: o.name)
def test_the_example_gives_what_it_shows(operation: Operation) -> None:
    expression, shown = operation.example
    assert operation.name in expression.replace("(tensor", "(constant")
    assert shown_value(expression, training=operation.random) == shown
