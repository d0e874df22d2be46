"""Loaders: where records come from, and what tensors a batch of them is.

Here they are declared and checked; reading their data is the training run's.  A loader's fields are
known without its data wherever its arguments say them; only `arrays` reads the headers of its file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sexpgpu.export.graph.types import Batch, DType, TensorType
from sexpgpu.export.language.arguments import as_integer, as_string
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.evaluator import OBJECT_COST
from sexpgpu.export.language.values import Builtin, Call, portray
from sexpgpu.export.operations.operation import check_size
from sexpgpu.schemas.errors import SexpgpuError


@dataclass(frozen=True)
class Loader:
    """A source of records: its kind, its options, and the type of a batch of each field.

    Raises E-SHAPE-003 for a field of which one record is too large.
    """

    kind: str
    file: str | None
    fields: Mapping[str, TensorType]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, type in self.fields.items():
            check_size(f"the field `{name}`", type.shape)

    def describe_value(self) -> str:
        return "a loader"

    def show_value(self) -> str:
        return f"#<loader {self.kind}{f' {self.file}' if self.file else ''}>"


def loader_builtins() -> list[Builtin]:
    """The builtins that make loaders."""
    return [
        Builtin(
            "text",
            "(file &key window tokenizer symbols split)",
            _text,
            "windows of a text as tokens [batch, window] i32",
        ),
        Builtin("arrays", "(file &key fields split)", _arrays, "the arrays of a file, by name"),
        Builtin("csv", '(file &key fields (separator ",") split)', _csv, "columns of a CSV file"),
        Builtin(
            "images",
            "(folder &key size (channels 3) split)",
            _images,
            "images [batch, channels, height, width] f32 in 0..1, and the label of their folder",
        ),
        Builtin("fields", "(&rest fields)", _fields, "what a record has, without any data"),
    ]


def _text(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Loader:
    file = _file(call, positional[0])
    if "window" not in keywords:
        raise call.error(
            "E-CALL-002", "`text` needs `:window`", expected='(text "file" :window 64)'
        )
    window = _whole(call, keywords["window"], "window", 1)
    # So few symbols are characters: bytes would be others.
    few = keywords.get("symbols") is not None
    tokenizer = keywords.get("tokenizer") or Keyword("characters" if few else "bytes")
    known = isinstance(tokenizer, Keyword) and tokenizer.name in ("bytes", "characters")
    if not known and type(tokenizer) is not str:
        raise call.wrong_kind(
            tokenizer, "tokenizer", ':bytes, :characters or the path of a "tokenizer.json"'
        )
    options = {
        "window": window,
        "tokenizer": tokenizer.name if isinstance(tokenizer, Keyword) else tokenizer,
        "symbols": None,
    }
    if keywords.get("symbols") is not None:
        options["symbols"] = _whole(call, keywords["symbols"], "symbols", 2)
    tokens = TensorType(DType.I32, (Batch(), window))
    return Loader("text", file, {"tokens": tokens}, options | _split(call, keywords))


def _arrays(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Loader:
    file = _file(call, positional[0])
    if "fields" in keywords:
        fields = _declared(call, keywords["fields"], "fields")
    else:
        from sexpgpu.export.storage.sources import open_source

        try:
            source = open_source(Path(file))
            keys = source.keys()
            fields = {key: _record_type(key, *source.describe(key)) for key in keys}
        except SexpgpuError as error:
            raise call.error(
                "E-DATA-001",
                f"the arrays of {file} cannot be told: "
                + error.message.replace("the :load file", "the file"),
                0,
                came=error.came,
                help="run sexpgpu where the file is, for relative paths start at the current "
                "directory, or give the types with :fields (list :x (list f32 28 28))",
            ) from None
        if not fields:
            raise call.error("E-DATA-001", f"{file} holds no arrays", 0)
    return Loader("arrays", file, fields, _split(call, keywords))


def _record_type(name: str, dtype: str, shape: Sequence[int]) -> TensorType:
    """The type of a batch of what an array holds along its first axis."""
    from sexpgpu.export.storage.weight_source import widened

    wide = widened(dtype)
    if not shape or wide is None:
        reason = "has rank 0, and records lie along axis 0" if not shape else f"is of {dtype}"
        raise SexpgpuError("E-DATA-001", f"`{name}` {reason}")
    return TensorType(wide, (Batch(), *shape[1:]))


def _csv(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Loader:
    file = _file(call, positional[0])
    if "fields" not in keywords:
        raise call.error(
            "E-CALL-002", "`csv` needs `:fields`", expected="(list :column f32 :label i32 …)"
        )
    fields = _declared(call, keywords["fields"], "fields")
    separator = as_string(call, keywords.get("separator", ","), "separator")
    if len(separator) != 1 or separator in '"\r\n':
        raise call.error(
            "E-VALUE-001",
            "`:separator` is one character, and neither a quote nor a line's end",
            "separator",
            came=portray(separator),
        )
    return Loader("csv", file, fields, {"separator": separator} | _split(call, keywords))


def _images(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Loader:
    folder = _file(call, positional[0])
    if "size" not in keywords:
        raise call.error(
            "E-CALL-002", "`images` needs `:size`", expected='(images "folder" :size 32)'
        )
    size = keywords["size"]
    sizes = size if isinstance(size, tuple) and len(size) == 2 else (size, size)
    height, width = (_whole(call, s, "size", 1) for s in sizes)
    channels = _whole(call, keywords.get("channels", 3), "channels", 1)
    fields = {
        "image": TensorType(DType.F32, (Batch(), channels, height, width)),
        "label": TensorType(DType.I32, (Batch(),)),
    }
    return Loader("images", folder, fields, _split(call, keywords))


def _fields(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Loader:
    return Loader("fields", None, _declared(call, tuple(positional), None))


def _file(call: Call, value: object) -> str:
    call.evaluator.charge(OBJECT_COST, call.span)
    path = as_string(call, value, 0)
    if not path or "\0" in path:
        raise call.error("E-VALUE-001", "no file has such a name", 0, came=portray(path))
    return path


def _whole(call: Call, value: object, name: str, least: int) -> int:
    number = as_integer(call, value, name)
    if number < least:
        raise call.error("E-VALUE-001", f"`:{name}` is at least {least}", name, came=str(number))
    return number


def _split(call: Call, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """`:split (list from to)`: the part of the data, as fractions."""
    split = keywords.get("split")
    if split is None:
        return {}
    fine = (
        isinstance(split, tuple)
        and len(split) == 2
        and all(type(s) in (int, float) for s in split)
        and 0 <= split[0] < split[1] <= 1
    )
    if not fine:
        raise call.wrong_kind(split, "split", "two fractions, such as (list 0.0 0.9)")
    return {"split": (float(split[0]), float(split[1]))}


def _declared(call: Call, value: object, argument: str | None) -> dict[str, TensorType]:
    """A plist of dtypes or (dtype size …) lists, as field types with the batch in front.

    `argument` is the keyword that has the plist, None where the call's arguments are its items.
    """
    call.evaluator.charge(OBJECT_COST, call.span)
    expected = "a field's name and its type in turn: :x (list f32 28 28) :y i32"
    if not isinstance(value, tuple) or len(value) % 2 or not value:
        raise call.wrong_kind(value, argument, expected)
    fields: dict[str, TensorType] = {}
    for index, (name, kind) in enumerate(zip(value[::2], value[1::2], strict=True)):
        place = 2 * index if argument is None else argument
        if not isinstance(name, Keyword):
            raise call.wrong_kind(name, place, expected)
        if name.name in fields:
            raise call.error("E-NAME-002", f"the field `{name.name}` is declared twice", place)
        parts = kind if isinstance(kind, tuple) else (kind,)
        sizes = parts[1:]
        fine = parts and isinstance(parts[0], DType)
        if not fine or not all(type(size) is int and size >= 0 for size in sizes):
            raise call.error(
                "E-TYPE-001",
                f"the field `{name.name}` is of no type",
                place + 1 if isinstance(place, int) else place,
                came=portray(kind),
                expected="a dtype, or a list of one and the sizes of a record: (list f32 28 28)",
            )
        fields[name.name] = TensorType(parts[0], (Batch(), *sizes))
    return fields
