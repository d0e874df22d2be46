"""The pickle inside a PyTorch checkpoint, read as a description of tensors.

A pickle is a program for a small stack machine, which may call any function by its name.  Here it
runs on a machine of its own that has nothing to call: the few names that rebuild tensors and
containers are understood, and any other makes a `Foreign`, a thing with a name and a state.
Python's own machine is not used even with its names restricted, since a file may make it take
memory (by the number of a memo) and stack (by the hash of nested tuples) without end.

The instructions: https://github.com/python/cpython/blob/main/Lib/pickletools.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sexpgpu.export.storage.torch_objects import (
    Foreign,
    Global,
    PickleFault,
    Storage,
    called,
    persistent,
)

_STEPS = 4_000_000
"""Instructions of a pickle at most; about fifty describe a tensor."""

_INTEGER_BYTES = 16

Buffer: TypeAlias = Any
"""Bytes that may be sliced: bytes, or a mapped file."""


_DICTIONARIES = {"collections.OrderedDict", "collections.defaultdict", "builtins.dict"}


@dataclass(frozen=True, slots=True)
class Pickle:
    """What a pickle describes, every storage that it names, and where it ends.

    The content is made of numbers, strings, bytes, None, lists, tuples, dictionaries with strings
    as keys (whole numbers are written out, what has another key is left out), and the classes of
    torch_objects.  A container may hold itself.
    """

    content: object
    storages: Sequence[Storage]
    end: int


def read_pickle(data: Buffer, start: int, end: int) -> Pickle:
    """The pickle at `start`, which ends before `end`.  Raises PickleFault."""
    machine = _Machine(data, start, end)
    return Pickle(machine.run(), machine.storages, machine.position)


@dataclass(slots=True)
class _Mark:
    """Where the items of a container begin."""


def _set(mapping: object, key: object, value: object) -> None:
    if isinstance(mapping, dict) and type(key) in (str, int):
        mapping[str(key)] = value


@dataclass
class _Machine:
    data: Buffer
    position: int
    end: int
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, object] = field(default_factory=dict)
    storages: list[Storage] = field(default_factory=list)
    left: int = _STEPS

    def run(self) -> object:
        while True:
            self.charge(1)
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                return self.pop()
            if (instruction := _INSTRUCTIONS.get(code)) is None:
                raise PickleFault(f"its instruction {code:#04x} is none that torch writes")
            instruction(self)

    def charge(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise PickleFault(f"it takes more than {_STEPS:,} steps to read")

    def take(self, length: int) -> bytes:
        start = self.position
        if length > self.end - start:
            raise PickleFault("it is truncated")
        self.position = start + length
        return bytes(self.data[start : start + length])

    def number(self, form: str) -> Any:
        form = "<" + form if form[0] not in "<>" else form
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.position, min(self.end, self.position + 4096))
        if end < 0:
            raise PickleFault("a name in it has no end")
        found = self.take(end + 1 - self.position)[:-1]
        return found.decode("utf-8", "replace")

    def pop(self) -> Any:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise PickleFault("it takes from an empty stack")
        return self.stack.pop()

    def push(self, value: object) -> None:
        self.stack.append(value)

    def items(self) -> list[Any]:
        """What stands above the last mark."""
        for index in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[index], _Mark):
                found = self.stack[index + 1 :]
                del self.stack[index:]
                return found
        raise PickleFault("it takes from an empty stack")

    def top(self) -> Any:
        value = self.pop()
        self.push(value)
        return value

    def string(self, form: str) -> None:
        self.push(self.take(self.number(form)).decode("utf-8", "replace"))

    def integer(self) -> None:
        if (length := self.number("B")) > _INTEGER_BYTES:
            raise PickleFault(f"a whole number has {length} bytes")
        self.push(int.from_bytes(self.take(length), "little", signed=True))

    def tuple_of(self, count: int) -> None:
        self.push(tuple(reversed([self.pop() for _ in range(count)])))

    def get(self, form: str) -> None:
        index = self.number(form)
        if index not in self.memo:
            raise PickleFault("it reads what it has not kept")
        self.push(self.memo[index])

    def put(self, index: int) -> None:
        self.memo[index] = self.top()

    def append(self, values: list[Any]) -> None:
        if isinstance(target := self.top(), list):
            target.extend(values)

    def update(self, values: list[Any]) -> None:
        target = self.top()
        for key, value in zip(values[::2], values[1::2], strict=False):
            _set(target, key, value)

    def mention(self, module: object, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise PickleFault("a name in it is no string")
        self.push(Global(f"{module}.{name}"))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Global) or function.name not in _DICTIONARIES:
            self.push(called(function, arguments))
            return
        made: dict[str, object] = {}
        if isinstance(arguments, tuple) and arguments and isinstance(arguments[0], list):
            self.charge(len(arguments[0]))
            for pair in arguments[0]:
                if isinstance(pair, (tuple, list)) and len(pair) == 2:
                    _set(made, *pair)
        self.push(made)

    def reduce_with_keywords(self) -> None:
        self.pop()
        self.reduce()

    def build(self) -> None:
        state = self.pop()
        if isinstance(target := self.top(), Foreign):
            target.state = state

    def append_one(self) -> None:
        value = self.pop()
        self.append([value])

    def update_one(self) -> None:
        value, key = self.pop(), self.pop()
        self.update([key, value])

    def name_above(self) -> None:
        name = self.pop()
        self.mention(self.pop(), name)

    def persistent(self) -> None:
        found = persistent(self.pop())
        if isinstance(found, Storage):
            self.storages.append(found)
        self.push(found)

    def set_of(self) -> None:
        self.items()
        self.push(Foreign("builtins.frozenset"))


_INSTRUCTIONS: Mapping[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.take(1),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME
    ord("("): lambda m: m.push(_Mark()),
    ord("0"): lambda m: m.pop(),
    ord("1"): lambda m: m.items(),
    ord("2"): lambda m: m.push(m.top()),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("J"): lambda m: m.push(m.number("i")),
    ord("K"): lambda m: m.push(m.number("B")),
    ord("M"): lambda m: m.push(m.number("H")),
    0x8A: _Machine.integer,
    ord("G"): lambda m: m.push(m.number(">d")),
    ord("X"): lambda m: m.string("I"),
    0x8C: lambda m: m.string("B"),
    0x8D: lambda m: m.string("Q"),
    ord("T"): lambda m: m.string("I"),
    ord("U"): lambda m: m.string("B"),
    ord("B"): lambda m: m.push(m.take(m.number("I"))),
    ord("C"): lambda m: m.push(m.take(m.number("B"))),
    0x8E: lambda m: m.push(m.take(m.number("Q"))),
    ord("]"): lambda m: m.push([]),
    ord("a"): _Machine.append_one,
    ord("e"): lambda m: m.append(m.items()),
    ord("l"): lambda m: m.push(m.items()),
    ord(")"): lambda m: m.push(()),
    ord("t"): lambda m: m.push(tuple(m.items())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("}"): lambda m: m.push({}),
    ord("s"): _Machine.update_one,
    ord("u"): lambda m: m.update(m.items()),
    0x8F: lambda m: m.push(Foreign("builtins.set")),
    0x90: lambda m: m.items(),
    0x91: _Machine.set_of,
    ord("h"): lambda m: m.get("B"),
    ord("j"): lambda m: m.get("I"),
    ord("q"): lambda m: m.put(m.number("B")),
    ord("r"): lambda m: m.put(m.number("I")),
    0x94: lambda m: m.put(len(m.memo)),
    ord("c"): lambda m: m.mention(m.line(), m.line()),
    0x93: _Machine.name_above,
    ord("R"): _Machine.reduce,
    0x81: _Machine.reduce,
    0x92: _Machine.reduce_with_keywords,
    ord("b"): _Machine.build,
    ord("Q"): _Machine.persistent,
}
