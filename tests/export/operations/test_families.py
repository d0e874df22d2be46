"""Every module that defines operations is among the families."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import importlib, pkgutil
from sexpgpu.export import operations
from sexpgpu.export.operations.operation import all_operations
known = set(all_operations())
assert len(known) > 100
for module in pkgutil.iter_modules(operations.__path__):
    importlib.import_module(f"{operations.__name__}.{module.name}")
print(*sorted(set(all_operations()) - known))
"""


def test_no_module_is_left_out() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
