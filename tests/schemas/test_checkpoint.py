"""checkpoint.json: the round trip, the seal, and what contradicts itself."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.schemas.checkpoint import (
    Checkpoint,
    DTypeValue,
    Keyword,
    LoadedParameter,
    NonFinite,
    Parameter,
    SourceText,
    StoredFile,
    checkpoint_schema,
    read_checkpoint,
    write_checkpoint,
)
from sexpgpu.schemas.errors import SexpgpuError

EXAMPLE = Checkpoint(
    producer="sexpgpu 0.1.0",
    step=20,
    slug="quiet-heron",
    variant="wide",
    knobs={
        "dim": 64,
        "rate": 0.1,
        "bias": True,
        "name": "x",
        "act": Keyword("gelu"),
        "kind": DTypeValue("bf16"),
        "mask": NonFinite("-inf"),
        "none": None,
        "sizes": [1, [2.5, [Keyword("same")]]],
    },
    precision="bf16",
    sources=[SourceText("tiny.sx", "(def a 1)\n")],
    parameters=[Parameter("tok", [32, 64], "f32"), Parameter("head.w", [64], "bf16")],
    loads=[LoadedParameter("tok", "w.gguf", "token_embd.weight", "ab" * 32, True)],
    files=[StoredFile("params.safetensors", 100, "cd" * 32)],
)


def changed(**fields: Any) -> bytes:
    """The example with other fields, sealed though it breaks the format."""
    content = {**msgspec.json.decode(write_checkpoint(EXAMPLE)), **fields}
    return write_checkpoint(content)  # type: ignore[arg-type]


def refusal(data: bytes) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        read_checkpoint(data, "checkpoint.json")
    return caught.value


def test_the_round_trip_is_exact() -> None:
    data = write_checkpoint(EXAMPLE)
    read = read_checkpoint(data, "checkpoint.json")
    assert msgspec.structs.replace(read, seal=EXAMPLE.seal) == EXAMPLE
    assert write_checkpoint(read) == data
    assert read.knobs["dim"] == 64
    assert isinstance(read.knobs["dim"], int)
    assert isinstance(read.knobs["rate"], float)


def test_frozen_parameters_are_not_stored() -> None:
    assert list(EXAMPLE.frozen) == ["tok"]
    assert [parameter.path for parameter in EXAMPLE.stored] == ["head.w"]
    assert EXAMPLE.file("ema.safetensors") is None


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_has_not(number: float) -> None:
    assert str(float(NonFinite.of(number))) == str(number)
    with pytest.raises(ValueError, match="finite"):
        NonFinite.of(1.0)


def test_every_flipped_bit_and_every_truncation_is_found() -> None:
    data = write_checkpoint(EXAMPLE)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        assert refusal(bytes(flipped)).code in ("E-CKPT-003", "E-JSON-002")
        assert refusal(data[:at]).code == "E-CKPT-003"
    assert refusal(data + b"\n").code == "E-CKPT-003"


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"step": -1}, "$.step"),
        ({"precision": "f16"}, "$.precision"),
        ({"parameters": [{"path": "a", "shape": [-1], "dtype": "f32"}]}, "$.parameters[0].shape"),
        ({"parameters": [{"path": "a", "shape": [1], "dtype": "f8"}]}, "$.parameters[0].dtype"),
        ({"parameters": [{"path": "a", "shape": [1], "dtype": "f32"}] * 2}, "$"),
        ({"files": [{"name": "../x", "size": 1, "sha256": "ab" * 32}]}, "$.files[0].name"),
        ({"files": [{"name": "x\n", "size": 1, "sha256": "ab" * 32}]}, "$.files[0].name"),
        ({"files": [{"name": "checkpoint.json", "size": 1, "sha256": "ab" * 32}]}, "$"),
        ({"files": [{"name": "x", "size": 1, "sha256": "ab"}]}, "$.files[0].sha256"),
        ({"parameters": []}, "$"),
        ({"knobs": {"a": {"type": "complex"}}}, "$.knobs[...].type"),
    ],
)
def test_what_breaks_the_format_is_named(fields: dict[str, Any], place: str) -> None:
    error = refusal(changed(**fields))
    assert error.code == "E-JSON-001"
    assert error.place is not None
    assert error.place.startswith(f"checkpoint.json {place}")


def test_a_newer_version_is_named_before_its_seal_is_looked_at() -> None:
    error = refusal(b'{"version": 2, "producer": "sexpgpu 7.0", "sum": 1}')
    assert error.code == "E-JSON-002"
    assert "sexpgpu 7.0" in error.render()


def test_the_schema_describes_what_is_written() -> None:
    schema = checkpoint_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    document = json.loads(write_checkpoint(EXAMPLE))
    validator.validate(document)
    assert not validator.is_valid({**document, "precision": "f16"})


_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(Checkpoint.__struct_fields__[:-1]), _VALUES)
def test_fuzz_a_field_of_anything(name: str, value: Any) -> None:
    """Sealed documents with one field replaced; the seal itself is the last."""
    try:
        read_checkpoint(changed(**{name: value}), "checkpoint.json")
    except SexpgpuError as error:
        error.render().encode()


@given(st.data())
def test_fuzz_bytes(data: st.DataObject) -> None:
    content = bytearray(write_checkpoint(EXAMPLE))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        content[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
    try:
        read_checkpoint(bytes(content), "checkpoint.json")
    except SexpgpuError as error:
        error.render().encode()
