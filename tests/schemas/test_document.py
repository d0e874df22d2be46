"""The JSON reader: what is wrong is said with its place."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import jsonschema
import msgspec
import pytest

from sexpgpu.schemas.document import json_schema, read_document, repeated_name
from sexpgpu.schemas.errors import SexpgpuError


class Node(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[int, msgspec.Meta(ge=0)]
    dtype: Literal["f32", "i32"]
    inputs: list[int] = []


class Document(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    nodes: list[Node]
    producer: str = "test"


def refusal(data: bytes, **options: int) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        read_document(data, Document, "m.json", version=1, **options)
    return caught.value


def test_reads_a_document() -> None:
    data = b'{"version": 1, "nodes": [{"id": 0, "dtype": "f32", "inputs": [1, 2]}]}'
    assert read_document(data, Document, "m.json", version=1) == Document(
        1, [Node(0, "f32", [1, 2])]
    )


@pytest.mark.parametrize(
    ("node", "place", "came", "expected"),
    [
        ({"id": 0, "dtype": "f32", "inputs": [1, "x"]}, ".inputs[1]", "`str`", "`int`"),
        ({"id": 0, "dtype": "f33"}, ".dtype", "'f33'", 'one of "f32", "i32"'),
        ({"id": -1, "dtype": "f32"}, ".id", None, "`int` >= 0"),
        ({"id": 0}, "", None, None),
        ({"id": 0, "dtype": "f32", "more": 1}, "", None, None),
    ],
)
def test_a_broken_format_is_named_by_place_and_expectation(
    node: object, place: str, came: str | None, expected: str | None
) -> None:
    good = {"id": 7, "dtype": "i32"}
    error = refusal(json.dumps({"version": 1, "nodes": [good, good, good, node]}).encode())
    assert error.code == "E-JSON-001"
    assert error.place == f"m.json $.nodes[3]{place}"
    assert (error.came, error.expected) == (came, expected)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"version": 1, "nodes": [',
        b'{"version": 1, "producer": "\xff", "nodes": []}',
        b'{"version": 1, "producer": "\\ud800", "nodes": []}',
        b"[" * 100_000,
        b'{"x":' * 100_000,
        b'{"version": 1, "nodes": NaN}',
        b'{"version": ' + b"9" * 100_000 + b"}",
    ],
    ids=lambda data: data[:24].decode("latin-1"),
)
def test_what_is_no_json_is_an_error(data: bytes) -> None:
    assert refusal(data).code == "E-JSON-001"


def test_a_name_that_comes_twice_is_refused() -> None:
    error = refusal(b'{"version": 1, "nodes": [{"id": 0, "id": 1, "dtype": "f32"}]}')
    assert error.code == "E-JSON-001"
    assert '"id" stands twice' in error.message
    assert repeated_name(b'{"a": {"b": 1}, "b": {"a": 1}}') is None


def test_a_document_over_the_limit_is_refused_unread() -> None:
    error = refusal(b"{" + b" " * 100, limit=100)
    assert error.code == "E-JSON-001"
    assert error.came == "101 bytes"


def test_a_newer_version_names_the_program_it_needs() -> None:
    error = refusal(b'{"version": 3, "producer": "sexpgpu 0.9.0", "shape": {}}')
    assert error.code == "E-JSON-002"
    assert "sexpgpu 0.9.0" in error.render()
    assert "a newer sexpgpu" in refusal(b'{"version": 3}').render()


def test_the_schema_is_draft_2020_12_and_agrees_with_the_reader() -> None:
    schema = json_schema(Document, title="a document")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"version": 1, "nodes": [{"id": 0, "dtype": "f32"}]})
    assert not validator.is_valid({"version": 1, "nodes": [{"id": 0, "dtype": "f33"}]})
