"""The user's configuration file: what aliases such as `o41://` stand for."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import platformdirs
from fsspec.registry import available_protocols

from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.schemas.errors import SexpgpuError

_EXAMPLE = '[aliases]\no41 = "s3://bucket/prefix"'
_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file at `path` says; where there is none, nothing."""

    path: Path
    aliases: dict[str, str] = field(default_factory=dict)


def configuration_path() -> Path:
    """`$SEXPGPU_CONFIG`, or `config.toml` in the user's configuration directory for sexpgpu."""
    if named := os.environ.get("SEXPGPU_CONFIG"):
        return Path(named)
    return Path(platformdirs.user_config_dir("sexpgpu")) / "config.toml"


def read_configuration(path: Path | None = None) -> Configuration:
    """Read the configuration at `path`, by default the user's.

    A file that is not there is an empty one, unless `$SEXPGPU_CONFIG` names it.
    Raises E-CONFIG-001 for a file that is malformed or cannot be read.
    """
    path = path or configuration_path()
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT + 1)
    except FileNotFoundError:
        if os.environ.get("SEXPGPU_CONFIG") == str(path):
            raise _malformed(path, "$SEXPGPU_CONFIG names a file that is not there") from None
        return Configuration(path)
    except OSError as error:
        raise _malformed(path, f"it cannot be read: {error.strerror}") from None
    if len(data) > _LIMIT:
        raise _malformed(path, f"it has more than {_LIMIT:,} bytes")
    try:
        content = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(path, f"it is not TOML: {error}") from None
    return Configuration(path, _aliases(content, path))


def _aliases(content: dict[str, object], path: Path) -> dict[str, str]:
    for name in content:
        if name != "aliases":
            hint = did_you_mean(name, ["aliases"])
            raise _malformed(path, f"`{name}` is nothing that sexpgpu knows", hint)
    try:
        aliases = msgspec.convert(content.get("aliases", {}), dict[str, str])
    except msgspec.ValidationError:
        raise _malformed(path, '`aliases` is not a table of `scheme = "URL"`') from None
    for scheme, url in aliases.items():
        if scheme.lower() in available_protocols():
            raise _malformed(path, f"`{scheme}://` has a meaning already and can be no alias")
        if "://" not in url and not os.path.isabs(url):
            raise _malformed(path, f"`{scheme}` stands for `{url}`, neither a URL nor a full path")
    return {scheme.lower(): url for scheme, url in aliases.items()}


def _malformed(path: Path, reason: str, help: str | None = None) -> SexpgpuError:
    return SexpgpuError(
        "E-CONFIG-001",
        f"the configuration file is malformed: {reason}",
        place=str(path),
        expected=_EXAMPLE,
        help=help,
    )
