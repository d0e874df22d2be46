"""What `defrun` says: how a model is trained. Declared and checked here, carried out by the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.loaders import Loader
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.values import Builtin, Call, describe
from sexpgpu.schemas.errors import SexpgpuError, Span
from sexpgpu.schemas.model import Precision


@dataclass(frozen=True)
class Recipe:
    """An optimizer, a schedule or a way of clipping: its kind, its name and its numbers."""

    kind: str
    name: str
    options: Mapping[str, Any]

    def describe_value(self) -> str:
        return f"a{'n' if self.kind[0] in 'aeiou' else ''} {self.kind}"

    def show_value(self) -> str:
        return f"#<{self.kind} {self.name}>"


#: Name, kind, signature: positional arguments take the name that the signature gives them.
_RECIPES = (
    ("sgd", "optimizer", "(&key (lr 0.01) (weight-decay 0.0))"),
    (
        "momentum",
        "optimizer",
        "(&key (lr 0.01) (momentum 0.9) (nesterov false) (weight-decay 0.0))",
    ),
    ("adam", "optimizer", "(&key (lr 0.001) (beta1 0.9) (beta2 0.999) (epsilon 1e-8))"),
    (
        "adamw",
        "optimizer",
        "(&key (lr 0.001) (beta1 0.9) (beta2 0.999) (epsilon 1e-8) (weight-decay 0.01))",
    ),
    ("lion", "optimizer", "(&key (lr 1e-4) (beta1 0.9) (beta2 0.99) (weight-decay 0.0))"),
    ("adafactor", "optimizer", "(&key (lr 0.001) (decay 0.8) (epsilon 1e-30))"),
    ("constant-schedule", "schedule", "(&key (warm-up 0))"),
    ("cosine", "schedule", "(&key (warm-up 0) (final 0.0) steps)"),
    ("linear-decay", "schedule", "(&key (warm-up 0) (final 0.0) steps)"),
    ("warm-up", "schedule", "(steps)"),
    ("steps", "schedule", "(at factor &key (warm-up 0))"),
    ("clip-norm", "clipping", "(norm)"),
    ("clip-value", "clipping", "(value)"),
)


def recipe_builtins() -> list[Builtin]:
    """The builtins that make optimizers, schedules and clippings."""
    return [_recipe_builtin(*recipe) for recipe in _RECIPES]


def _recipe_builtin(name: str, kind: str, signature: str) -> Builtin:
    def make(call: Call, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Recipe:
        names = [item.name for item in builtin.signature.required if hasattr(item, "name")]
        options = {
            key: getattr(default, "value", None) for key, default in builtin.signature.keys.items()
        }
        options |= dict(zip(names, positional, strict=True)) | dict(keywords)
        for key, value in options.items():
            numbers = value if isinstance(value, tuple) and key == "at" else (value,)
            for number in numbers:
                if number is not None and not isinstance(number, int | float):
                    argument: int | str = names.index(key) if key in names else key
                    raise call.wrong_kind(value, argument, "a number")
                if number is not None and not float("-inf") < number < float("inf"):
                    raise call.error("E-VALUE-001", f"`{key}` is finite", came=str(number))
        return Recipe(kind, name, options)

    builtin = Builtin(name, signature, make, f"a{'n' if kind[0] in 'aeiou' else ''} {kind}")
    return builtin


@dataclass(frozen=True)
class Run:
    """A training run, as `defrun` says it."""

    train: Loader
    eval: Loader | None
    steps: int
    batch: int
    optimizer: Recipe
    schedule: Recipe | None
    clip: Recipe | None
    ema: float | None
    precision: Precision
    seed: int
    checkpoint_every: int | None
    evaluate_every: int | None
    evaluate_batches: int | None
    accumulate: int
    keep: int | None


KEYS = (
    "train",
    "eval",
    "steps",
    "batch",
    "optimizer",
    "schedule",
    "clip",
    "ema",
    "precision",
    "seed",
    "checkpoint-every",
    "evaluate-every",
    "evaluate-batches",
    "accumulate",
    "keep",
)


def make_run(values: Mapping[str, Any], spans: Mapping[str, Span | None], span: Span | None) -> Run:
    """The run that a plist says.  Raises E-RUN-001 with the key that is wrong."""
    reader = _Reader(values, spans, span)
    for key in values:
        if key not in KEYS:
            raise reader.fail(
                key, f"`defrun` has no key `:{key}`", help=did_you_mean(key, KEYS, ":")
            )
    train = reader.one("train", Loader, "a loader")
    if train is None:
        raise reader.fail("train", "`defrun` needs `:train`, a loader")
    clip = values.get("clip")
    if isinstance(clip, int | float) and not isinstance(clip, bool):
        clip = Recipe("clipping", "clip-norm", {"norm": float(clip)})
    elif clip is not None and not (isinstance(clip, Recipe) and clip.kind == "clipping"):
        raise reader.wrong("clip", "a norm, (clip-norm 1.0) or (clip-value 1.0)")
    return Run(
        train=train,
        eval=reader.one("eval", Loader, "a loader"),
        steps=reader.whole("steps", 1) or 1000,
        batch=reader.whole("batch", 1) or 32,
        optimizer=reader.recipe("optimizer")
        or Recipe(
            "optimizer",
            "adamw",
            {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight-decay": 0.01},
        ),
        schedule=reader.recipe("schedule"),
        clip=clip,
        ema=reader.fraction("ema"),
        precision=reader.precision(),
        seed=reader.whole("seed", 0) or 0,
        checkpoint_every=reader.whole("checkpoint-every", 1),
        evaluate_every=reader.whole("evaluate-every", 1),
        evaluate_batches=reader.whole("evaluate-batches", 1),
        accumulate=reader.whole("accumulate", 1) or 1,
        keep=reader.whole("keep", 1),
    )


class _Reader:
    """Takes values out of the plist and checks their kinds."""

    def __init__(
        self, values: Mapping[str, Any], spans: Mapping[str, Span | None], span: Span | None
    ) -> None:
        self.values = values
        self.spans = spans
        self.span = span

    def fail(
        self,
        key: str,
        message: str,
        *,
        came: str | None = None,
        expected: str | None = None,
        help: str | None = None,
    ) -> SexpgpuError:
        span = self.spans.get(key) or self.span
        return SexpgpuError(
            "E-RUN-001", message, span=span, came=came, expected=expected, help=help
        )

    def wrong(self, key: str, expected: str) -> SexpgpuError:
        came = describe(self.values[key])
        return self.fail(key, f"`:{key}` of `defrun` is wrong", came=came, expected=expected)

    def one(self, key: str, kind: type, expected: str) -> Any:
        value = self.values.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.wrong(key, expected)
        return value

    def recipe(self, kind: str) -> Recipe | None:
        value = self.values.get(kind)
        if value is not None and not (isinstance(value, Recipe) and value.kind == kind):
            names = ", ".join(f"({name} …)" for name, of, _ in _RECIPES if of == kind)
            raise self.wrong(kind, f"a {kind}: {names}")
        return value

    def whole(self, key: str, least: int) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(key, f"a whole number, at least {least}")
        return value

    def fraction(self, key: str) -> float | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.wrong(key, "a number from 0 up to 1, such as 0.99")
        return float(value)

    def precision(self) -> Precision:
        value = self.values.get("precision", DType.F32)
        name = value.name if isinstance(value, Keyword) else value
        if name == "f32":
            return "f32"
        if name == "bf16":
            return "bf16"
        raise self.wrong("precision", "f32 or bf16")
