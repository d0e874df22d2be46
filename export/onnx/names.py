"""The one authority for names in an ONNX graph: every name is given once."""

from __future__ import annotations


class Names:
    """Hands out names, each once; a name that is taken gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, … where it is taken."""
        name = wanted
        number = self._next.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._next[wanted] = number
        self._taken.add(name)
        return name
