"""`load-from`: a whole model's parameters out of one file that names them in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sexpgpu.export.language.arguments import as_list, as_string
from sexpgpu.export.language.models import Model, walk_parts
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.language.values import Builtin, Call, describe

_SIGNATURE = "(file model &key (rename ()) (frozen false))"
_RENAMING = '(list "blocks" "encoder.layer" "norm.scale" "LayerNorm.weight")'

#: Replacements in a dotted path: what is replaced, in parts, and by what.
Rules = list[tuple[list[str], str]]


def load_builtin() -> Builtin:
    """`(load-from file model)`: the model, whose every parameter is read from the file.

    A parameter's key in the file is its path from this model, as `:rename` changes it.  That is a
    list of paths and what stands for them, `(list "blocks" "encoder.layer" "q.w" "query.weight")`:
    from left to right the longest one that begins at a part of the path is replaced, whole parts
    only, and what it became is not looked at again.  Or it is a function from a path to a key,
    where nil leaves the parameter as it is.

    With `:frozen` the parameters are never trained, and a checkpoint names the file instead of
    holding them.  A parameter that has a `:load` already keeps it, so that one model may be loaded
    from several files.  The file is opened when its values are needed and not before.  Raises
    E-TYPE-001 and E-VALUE-001 for arguments of another kind.
    """
    return Builtin("load-from", _SIGNATURE, _load_from, "a model with its parameters from a file")


def _load_from(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Model:
    file, model = as_string(call, positional[0], 0), positional[1]
    if not isinstance(model, Model):
        raise call.wrong_kind(model, 1, "a model: (load-from file (my-model 32 64))")
    frozen = keywords.get("frozen", False)
    if not isinstance(frozen, bool):
        raise call.wrong_kind(frozen, "frozen", "true or false")
    rename = keywords.get("rename", ())
    rules = _rules(call, rename) if isinstance(rename, tuple) else None
    for path, item in walk_parts(model):
        call.evaluator.charge(1 + len(path) // 8, call.span)
        if not isinstance(item, Parameter) or item.load is not None:
            continue
        key = _called(call, rename, path) if rules is None else _replaced(path, rules)
        if key is not None:
            item.load, item.key = file, key
            item.frozen = item.frozen or frozen
    return model


def _rules(call: Call, rename: object) -> Rules:
    """The replacements of `:rename`, those of most parts first."""
    items = as_list(call, rename, "rename")
    if len(items) % 2:
        raise call.error(
            "E-VALUE-001",
            "`:rename` lists paths and what stands for them, in turn",
            "rename",
            came=describe(items),
            expected=_RENAMING,
        )
    strings = [as_string(call, item, "rename") for item in items]
    call.evaluator.charge(len(strings), call.span)
    rules = [(a.split("."), b) for a, b in zip(strings[::2], strings[1::2], strict=True)]
    return sorted(rules, key=lambda rule: -len(rule[0]))


def _replaced(path: str, rules: Rules) -> str:
    parts, key = path.split("."), list[str]()
    start = 0
    while start < len(parts):
        for old, new in rules:
            if parts[start : start + len(old)] == old:
                key.append(new)
                start += len(old)
                break
        else:
            key.append(parts[start])
            start += 1
    return ".".join(key)


def _called(call: Call, rename: Any, path: str) -> str | None:
    """The key that a function gives; nil for none."""
    key = call.evaluator.apply(rename, [path], span=call.span_of("rename"))
    if key is None or isinstance(key, str):
        return key
    raise call.error(
        "E-TYPE-001",
        f"`:rename` gives {describe(key)} for the path `{path}`",
        "rename",
        expected="a key of the file, a string, or nil",
    )
