"""The samples cover every operation: each dtype of each operand, and what its attributes may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sexpgpu.export.graph.graph import Node
from sexpgpu.export.graph.types import Batch, DType
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.signature import GIVEN, REQUIRED, Attribute, Kind
from support.samples import Sample, samples_of

OPERATIONS = list(all_operations().values())
#: Dtypes that an attribute of an operation refuses, by its constraints.
REFUSED = {
    "iota": {DType.BOOL},
    "random-normal": {DType.BOOL, DType.I32, DType.I64},
    "random-uniform": {DType.BOOL, DType.I32, DType.I64},
}


def _calls(operation: Operation) -> Iterator[tuple[Sample, Node]]:
    for sample in samples_of(operation.name):
        for dtype in sample.dtypes:
            yield sample, sample.node(dtype)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_every_dtype_of_every_operand_has_a_sample(operation: Operation) -> None:
    found: set[tuple[str, DType]] = set()
    calls = 0
    for _, node in _calls(operation):
        names = operation.operand_names(node.attributes, len(node.inputs))
        found |= {(n, v.type.dtype) for n, v in zip(names, node.inputs, strict=True)}
        calls += 1
    wanted = {(operand.name, d) for operand in operation.signature.operands for d in operand.dtypes}
    assert calls
    assert found == wanted


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_every_attribute_varies_over_the_samples(operation: Operation) -> None:
    calls = list(_calls(operation))
    for attribute in operation.signature.attributes:
        values = [node.attributes[attribute.name] for _, node in calls]
        if attribute.name == GIVEN:
            _check_optional_operands(operation, values)
            continue
        found = _kinds(values)
        wanted = _wanted(operation, attribute)
        assert wanted <= found, f"no sample of {operation.name} has {wanted - found}"
        if attribute.kind is not Kind.GRAPH:
            assert len(found) > 1, f"all samples of {operation.name} have one {attribute.name}"


def _check_optional_operands(operation: Operation, values: list[tuple[str, ...]]) -> None:
    assert () in values
    for operand in operation.signature.operands:
        if operand.optional:
            assert any(operand.name in value for value in values), operand.name


def _kinds(values: list[Any]) -> set[Any]:
    """The different values; a graph or an array is one by itself."""
    plain = (int, float, str, tuple, Batch, type(None))
    return {value if isinstance(value, plain) else id(value) for value in values}


def _wanted(operation: Operation, attribute: Attribute) -> set[Any]:
    """The values that must occur: all of them where they can be counted, else the default."""
    default = set() if attribute.default is REQUIRED else {attribute.default}
    match attribute.kind:
        case Kind.BOOLEAN:
            return {True, False}
        case Kind.WORD | Kind.PADDING:
            return default | {*attribute.choices}
        case Kind.DTYPE:
            return {*DType} - REFUSED.get(operation.name, set())
        case _:
            return default


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_a_sample_has_the_batch(operation: Operation) -> None:
    assert operation.name in WITHOUT_BATCH or any(s.has_batch for s in samples_of(operation.name))


#: Operations that neither take nor name the batch.
WITHOUT_BATCH = {"constant", "eye"}
