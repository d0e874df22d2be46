"""Code of packages that models come from, without what else the packages bring in."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def definitions(path: Path, *names: str, **known: Any) -> SimpleNamespace:
    """Classes and functions of a module's file, by name; `known` are the globals that they read.

    Nothing else of the file is run, so that what it imports need not be there.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Python would write otherwise today
        tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    tree.body = [node for node in tree.body if isinstance(node, kinds) and node.name in names]
    assert len(tree.body) == len(names), f"{path.name} does not define {names}"
    exec(compile(tree, str(path), "exec"), known)
    return SimpleNamespace(**{name: known[name] for name in names})
