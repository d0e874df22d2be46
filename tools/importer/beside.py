"""What stands beside the weights and changes what a model gives to those who load it as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_LIMIT = 1 << 20
_ADAPTER = "adapter_config.json"
_MODULES = "modules.json"

#: How sentence-transformers makes one vector of the tokens' (models/Pooling.py), by its keys.
_POOLINGS = {
    "pooling_mode_cls_token": "the vector of the first token",
    "pooling_mode_mean_tokens": "the mean over the tokens",
    "pooling_mode_max_tokens": "the largest over the tokens",
    "pooling_mode_mean_sqrt_len_tokens": "the sum over the tokens by the root of their number",
    "pooling_mode_weightedmean_tokens": "the mean over the tokens, weighted by their places",
    "pooling_mode_lasttoken": "the vector of the last token",
}


def notes_beside(folder: Path) -> list[str]:
    """What has to be said of the files in the directory of the weights."""
    notes = []
    if (folder / _ADAPTER).is_file():
        notes.append("there is an adapter beside the weights, and it is not applied")
    top = next((at for at in (folder, folder.parent) if _is_top(at, folder)), None)
    if top is not None:
        steps = ", then ".join(_steps(top)) or "what that says"
        notes.append(
            f"sentence-transformers makes a text's vector of what the model gives, by {_MODULES}: "
            f"{steps}; the program ends before that"
        )
    return notes


def _is_top(at: Path, folder: Path) -> bool:
    """Whether a directory lists the modules of a text's vector, the first of them in `folder`."""
    if not (at / _MODULES).is_file():
        return False
    return at == folder or any(name == folder.name for _, name in _modules(at))


def _steps(top: Path) -> list[str]:
    """What is done with the hidden states, as far as it is known; the first module makes them."""
    steps = []
    for kind, name in _modules(top)[1:]:
        if kind == "Pooling":
            flags = _read(top / name / "config.json")
            known = flags if isinstance(flags, dict) else {}
            found = [about for key, about in _POOLINGS.items() if known.get(key) is True]
            steps.append(" and ".join(found) or name)
        else:
            steps.append("a length of 1" if kind == "Normalize" else name)
    return steps


def _modules(top: Path) -> list[tuple[str, str]]:
    """The modules' kinds and the names of their directories; empty where the file is another."""
    found = _read(top / _MODULES)
    modules = []
    for module in found if isinstance(found, list) else []:
        if not isinstance(module, dict):
            return []
        kind, name = module.get("type"), module.get("path")
        if not isinstance(kind, str) or not isinstance(name, str):
            return []
        # a directory below, and no other
        if Path(name).name != name or name == ".." or not name.isprintable() or len(name) > 100:
            return []
        modules.append((kind.rpartition(".")[2], name))
    return modules[:10]


def _read(path: Path) -> Any:
    """A small file of JSON; None for what is none."""
    try:
        if not path.is_file() or path.stat().st_size > _LIMIT:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
