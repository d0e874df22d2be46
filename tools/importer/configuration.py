"""What a model's configuration says: read key by key, as a stranger's, and nothing passed over."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from sexpgpu.schemas.errors import SexpgpuError

#: No width, depth or count of a model is larger.
WHOLE_LIMIT = 2**31 - 1
DEPTH_LIMIT = 1_000
_SHOWN = 60


class Configuration:
    """Keys and values, of config.json or of a GGUF file's metadata.

    Whoever reads a key says what its value may be and what it is where the key is missing; what
    nobody has read is left over.  `called` has the names of keys in the file, where they differ.
    Errors: E-IMPORT-003 for a value of another kind or out of range, E-IMPORT-004 for one that
    means something that no program is written for.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        place: str,
        called: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> None:
        self.place = place
        self._values = values
        self._called = called or {}
        self._prefix = prefix
        self._read: set[str] = set()
        self._sections: list[Configuration] = []

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the file says null for a key."""
        return key in self._values and self._values[key] is None

    def name(self, key: str) -> str:
        """What the file calls a key."""
        return self._called.get(key, self._prefix + key)

    def take(self, key: str, default: Any = None) -> Any:
        """Whatever stands under a key, null being as good as nothing."""
        self._read.add(key)
        value = self._values.get(key)
        return default if value is None else value

    def put(self, key: str, value: Any) -> None:
        """Has a key say something else than the file does."""
        self._values = {**self._values, key: value}

    def whole(
        self, key: str, default: int | None, *, least: int = 1, most: int = WHOLE_LIMIT
    ) -> int:
        """A whole number; a default of None says that there must be one."""
        value = self.take(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.wrong(key, f"a whole number from {least} to {most:,}")
        return value

    def optional_whole(self, key: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A whole number or null, which None stands for, as where the key is missing."""
        if self.is_null(key) or (key not in self and default is None):
            return self.take(key)  # type: ignore[no-any-return]
        return self.whole(key, default, least=least)

    def number(self, key: str, default: float | None) -> float:
        """A finite number above 0."""
        value = self.take(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < math.inf
        ):
            self.wrong(key, "a finite number above 0")
        return float(value)

    def optional_number(self, key: str, default: float | None = None) -> float | None:
        """A finite number above 0 or null, which None stands for, as where the key is missing."""
        if self.is_null(key) or (key not in self and default is None):
            return self.take(key)  # type: ignore[no-any-return]
        return self.number(key, default)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            self.wrong(key, "true or false")
        return value

    def word(self, key: str, default: str) -> str:
        """A string."""
        value = self.take(key, default)
        if not isinstance(value, str):
            self.wrong(key, "a string")
        return value

    def words(self, key: str) -> list[str]:
        """A list of strings; empty where there is none."""
        value = self.take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.wrong(key, "a list of strings")
        return value

    def section(self, key: str) -> Configuration | None:
        """The keys and values under a key; None where there are none."""
        value = self.take(key)
        if value is None or value == {}:
            return None
        if not isinstance(value, dict):
            self.wrong(key, "keys and values")
        section = Configuration(value, self.place, prefix=f"{self.name(key)}.")
        self._sections.append(section)
        return section

    def require(self, key: str, *allowed: Any, why: str) -> None:
        """Holds a key that changes the numbers to the values that programs are written for."""
        value = self.take(key, allowed[0])
        if value not in allowed:
            self.unsupported(key, why, expected=" or ".join(_show(item) for item in allowed))

    def unread(self, harmless: Collection[str]) -> list[str]:
        """The keys that nobody asked for, but for null and those that change no numbers."""
        left = (key for key, value in self._values.items() if value is not None)
        own = [self.name(key) for key in left if key not in self._read and key not in harmless]
        return own + [key for section in self._sections for key in section.unread(harmless)]

    def wrong(self, key: str, expected: str) -> NoReturn:
        """Raises E-IMPORT-003 over the value of a key."""
        missing = key not in self
        raise SexpgpuError(
            "E-IMPORT-003",
            f"the configuration has no `{self.name(key)}`"
            if missing
            else f"`{self.name(key)}` of the configuration is not what it must be",
            place=self.place,
            came=None if missing else _show(self._values[key]),
            expected=expected,
        )

    def unsupported(
        self, key: str, why: str, *, expected: str | None = None, help: str | None = None
    ) -> NoReturn:
        """Raises E-IMPORT-004 over the value of a key."""
        raise SexpgpuError(
            "E-IMPORT-004",
            why,
            place=self.place,
            came=f"{self.name(key)} {_show(self._values.get(key))}",
            expected=expected,
            help=help,
        )


def _show(value: object) -> str:
    """A value of the file in a message: short, on one line."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
