"""The equation of an einsum, `"bij,bjk->bik"`: which axes are one and the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from sexpgpu.export.graph.types import Dimension, Shape, format_shape
from sexpgpu.export.operations.rules import broadcast, fail_shape, fail_value

#: Letters for the axes that `...` stands for, counted from the last; no equation can name them.
_UNNAMED = 0x3B1


@dataclass(frozen=True, slots=True)
class Step:
    """One product: the letters of its operands by what becomes of them.

    `batch` letters are in both and stay, `inner` ones are in both and are summed, and `left` and
    `right` ones are in one operand and stay.  Letters that only one operand has and nothing needs
    later are summed before.
    """

    batch: str
    left: str
    right: str
    inner: str

    @property
    def result(self) -> str:
        return self.batch + self.left + self.right


@dataclass(frozen=True, slots=True)
class Equation:
    """A letter for every axis of every operand and of the result, and the letters' sizes.

    An axis of `...` that broadcasts (its size is 1 and the letter's is not) is a space.
    """

    operands: tuple[str, ...]
    result: str
    sizes: dict[str, Dimension]

    def shape(self, letters: str) -> Shape:
        return tuple(self.sizes[letter] for letter in letters)

    def needed(self, after: int) -> str:
        """The letters that are needed once operands up to number `after` were multiplied."""
        return "".join(self.operands[after + 1 :]) + self.result

    def step(self, left: str, right: str, needed: str) -> Step:
        """The product of two operands whose letters are all needed by each other or later."""
        both = [letter for letter in left if letter in right]
        return Step(
            batch="".join(letter for letter in both if letter in needed),
            left="".join(letter for letter in left if letter not in right),
            right="".join(letter for letter in right if letter not in left),
            inner="".join(letter for letter in both if letter not in needed),
        )


def parse_equation(text: str, shapes: Sequence[Shape]) -> Equation:
    """The equation over operands of these shapes.

    Without `->` the result has, as in NumPy, the letters that occur once, in alphabetical order.
    Raises E-VALUE-001 for a malformed equation, E-SHAPE-001 where the shapes do not fit.
    """
    words = text.replace(" ", "")
    left, arrow, result = words.partition("->")
    operands = left.split(",")
    for word in [*operands, result]:
        named = word.replace("...", "", 1)
        if named and not (named.isascii() and named.isalpha()):
            _fail(f"`{word}` is not a word of letters with at most one `...`", text)
    if len(operands) != len(shapes):
        _fail(f"it names {len(operands)} operands", text, f"{len(shapes)} tensors")
    unnamed = [
        _unnamed_shape(word, shape, text) for word, shape in zip(operands, shapes, strict=True)
    ]
    common = broadcast("einsum", unnamed)
    sizes: dict[str, Dimension] = dict(zip(_letters(len(common)), common, strict=True))
    axes = []
    for word, shape, inside in zip(operands, shapes, unnamed, strict=True):
        letters = word.replace("...", _letters(len(inside)))
        for letter, dimension in zip(letters, shape, strict=True):
            _unify(letter, dimension, sizes, text, shapes)
        axes.append(
            "".join(
                letter if sizes[letter] == dimension else " "
                for letter, dimension in zip(letters, shape, strict=True)
            )
        )
    if arrow:
        result = result.replace("...", _letters(len(common)))
    else:
        once = sorted(c for c in sizes if left.count(c) == 1)
        result = _letters(len(common)) + "".join(once)
    _check_result(result, sizes, text)
    return Equation(tuple(axes), result, sizes)


def diagonal(letters: str) -> tuple[int, int] | None:
    """Two axes of one letter, the later one as late as can be; None where each has its own."""
    for later in range(len(letters) - 1, -1, -1):
        first = letters.index(letters[later])
        if first < later:
            return first, later
    return None


def _letters(count: int) -> str:
    return "".join(chr(_UNNAMED + i) for i in range(count - 1, -1, -1))


def _unnamed_shape(word: str, shape: Shape, text: str) -> Shape:
    """The dimensions that `...` stands for in an operand."""
    named = len(word.replace("...", ""))
    if len(shape) < named or (len(shape) > named and "..." not in word):
        fail_shape(
            f"`einsum` names {named} axes of a tensor of rank {len(shape)}",
            came=f'{format_shape(shape)} for `{word}` of "{text}"',
            help="`...` stands for any further axes",
        )
    start = word.find("...")
    return shape[start : start + len(shape) - named] if start >= 0 else ()


def _unify(
    letter: str,
    dimension: Dimension,
    sizes: dict[str, Dimension],
    text: str,
    shapes: Sequence[Shape],
) -> None:
    """Sees that one letter means one size; axes of `...` were broadcast before."""
    if sizes.setdefault(letter, dimension) != dimension and letter.isascii():
        fail_shape(
            f'`einsum` has two sizes for the letter `{letter}` of "{text}"',
            came=f"{sizes[letter]} and {dimension}, in " + " and ".join(map(format_shape, shapes)),
            expected="axes of one letter are of one size",
        )


def _check_result(result: str, sizes: dict[str, Dimension], text: str) -> None:
    for letter in result:
        if letter not in sizes:
            _fail(f"its result has `{letter}`, which no operand has", text)
        if result.count(letter) > 1:
            _fail(f"its result has `{letter}` twice", text)


def _fail(message: str, text: str, came: str | None = None) -> NoReturn:
    fail_value(
        f"the equation of `einsum` is wrong: {message}",
        came=f'"{text}"' + (f" for {came}" if came else ""),
        help='write a letter for each axis, as in "bij,bjk->bik"',
    )
