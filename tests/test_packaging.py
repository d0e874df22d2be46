"""What is installed: the packages, what they carry beside code, and nothing else at the top."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("export", "schemas", "serve", "tools")


def _project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def _package_directories() -> list[Path]:
    return [file.parent for name in PACKAGES for file in sorted((ROOT / name).rglob("__init__.py"))]


def test_every_package_is_listed() -> None:
    names = {f"sexpgpu.{'.'.join(d.relative_to(ROOT).parts)}" for d in _package_directories()}
    assert set(_project()["tool"]["setuptools"]["packages"]) == names


def test_every_directory_with_code_is_a_package() -> None:
    directories = {file.parent for name in PACKAGES for file in (ROOT / name).rglob("*.py")}
    assert directories == set(_package_directories())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names inside the wheel of what the project's files are now."""
    # From a copy: setuptools would leave its work in the checkout, and find it there next time.
    copy = tmp_path_factory.mktemp("copy")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(copy / done.stdout.split()[-1]) as archive:
        return set(archive.namelist())


def test_a_wheel_holds_every_source_file_under_one_name(wheel: set[str]) -> None:
    sources = {
        f"sexpgpu/{file.relative_to(ROOT).as_posix()}"
        for name in PACKAGES
        for file in (ROOT / name).rglob("*")
        if file.suffix in (".py", ".sx", ".c", ".html", ".mjs", ".toml", ".typed")
    }
    assert {name for name in wheel if ".dist-info/" not in name} == sources
    assert "sexpgpu/export/language/layers/linear.sx" in sources
    assert {f"sexpgpu/{name}/py.typed" for name in PACKAGES} <= sources


def test_a_wheel_holds_the_licence(wheel: set[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
