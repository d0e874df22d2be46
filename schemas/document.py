"""Reading a JSON document of a known type: what is wrong in it is said with its place.

The types are msgspec Structs, so that a document's reader and its JSON Schema have one source.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn, TypeVar

import msgspec

from sexpgpu.schemas.errors import SexpgpuError

T = TypeVar("T")

DOCUMENT_LIMIT = 128 << 20
"""Bytes that a document may have: four times what a graph of 200,000 nodes takes."""

_AT = re.compile(r" - at `(.*)`$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected (.+?)(?:, got (.+))?$", re.DOTALL)


class _Header(msgspec.Struct):
    version: int | None = None
    producer: str | None = None


def read_document(
    data: bytes, kind: type[T], place: str, *, version: int, limit: int = DOCUMENT_LIMIT
) -> T:
    """Decode `data`, the bytes of the file `place`, as the Struct `kind`.

    `version` is the newest that this program knows.  Raises E-JSON-001 for what breaks the type
    (also for a name that stands twice in one object, of which JSON readers would each keep
    another), and E-JSON-002 for a newer version.
    """
    if len(data) > limit:
        raise SexpgpuError(
            "E-JSON-001",
            "the document is too large",
            place=place,
            came=f"{len(data):,} bytes",
            expected=f"at most {limit:,} bytes",
        )
    check_version(data, place, version)
    document = decode(data, kind, place)
    try:
        name = repeated_name(data)
    except RecursionError:
        raise _malformed("it is nested too deep", place) from None
    if name is not None:
        raise SexpgpuError(
            "E-JSON-001",
            f"the name {json.dumps(name)} stands twice in one object",
            place=place,
            expected="every name of an object once",
        )
    return document


def decode(data: bytes | msgspec.Raw, kind: type[T], place: str, path: str = "$") -> T:
    """Decode JSON as `kind`; `path` is where in the document it stands.  Raises E-JSON-001."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        _refuse(str(error), kind, place, path)
    except RecursionError:
        raise _malformed("it is nested too deep", place) from None
    except (msgspec.DecodeError, UnicodeError, ValueError, OverflowError) as error:
        raise _malformed(str(error), place) from None


def check_version(data: bytes, place: str, version: int) -> None:
    """Refuse a document of a later version than `version` with E-JSON-002; pass over all else."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError):
        return  # whatever it is, the typed reader says it better
    if header.version is not None and header.version > version:
        writer = header.producer or "a newer sexpgpu"
        raise SexpgpuError(
            "E-JSON-002",
            "the document is of a newer version than this program knows",
            place=f"{place} $.version",
            came=f"version {header.version}, written by {writer}",
            expected=f"version {version} or lower",
            help=f"read it with {writer}: `pip install --upgrade sexpgpu`",
        )


def repeated_name(data: bytes | msgspec.Raw) -> str | None:
    """The first name that an object of this (well-formed) JSON has twice, or None.

    Nothing is kept of what is read, so that this takes no memory to speak of.
    """
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        if len({name for name, _ in pairs}) != len(pairs):
            (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            found.append(name)

    # Numbers stay text: they have been checked, and converting a long one takes quadratic time.
    json.loads(bytes(data), object_pairs_hook=look, parse_int=len, parse_float=len)
    return found[0] if found else None


def json_schema(kind: type, *, title: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents that `kind` describes."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **msgspec.json.schema(kind),
    }


def _malformed(reason: str, place: str) -> SexpgpuError:
    reason = reason.removeprefix("JSON is malformed: ")
    return SexpgpuError(
        "E-JSON-001",
        f"the document is not JSON: {_lower(reason)}",
        place=place,
        help="the file may be truncated or damaged; write it again or fetch it again",
    )


def _refuse(text: str, kind: type, place: str, path: str) -> NoReturn:
    """Turn msgspec's "Expected `int`, got `str` - at `$.nodes[3]`" into an error of ours."""
    inner = ""
    if (at := _AT.search(text)) is not None:
        inner = at.group(1).removeprefix("$")
        text = text[: at.start()]
    message, came, expected = _lower(text), None, None
    if (match := _EXPECTED.match(text)) is not None:
        message = "the document breaks its format"
        expected, came = match.group(1), match.group(2)
    elif text.startswith("Invalid enum value "):
        message = "the document breaks its format"
        came = text.removeprefix("Invalid enum value ")
        expected = _choices(kind, inner)
    raise SexpgpuError(
        "E-JSON-001", message, place=f"{place} {path}{inner}", came=came, expected=expected
    ) from None


def _choices(kind: type, path: str) -> str | None:
    """The values allowed at `path` (`.nodes[3].dtype`), where its type lists them."""
    (schema,), definitions = msgspec.json.schema_components([kind])
    for name, index in re.findall(r"\.([^.\[]+)|\[([^\]]*)\]", path):
        schema = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
        if name:
            schema = schema.get("properties", {}).get(name, {})
        else:
            schema = schema.get("additionalProperties" if index == "..." else "items", {})
    if "enum" not in schema:
        return None
    return "one of " + ", ".join(json.dumps(value) for value in schema["enum"])


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
