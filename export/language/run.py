"""What `defrun` says: how a model is trained. Declared and checked here, carried out by the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.data import Keyword, ListDatum
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.loaders import Loader
from sexpgpu.export.language.recipes import RECIPES, Recipe, default_recipe, with_article
from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.export.language.values import Builtin, portray
from sexpgpu.schemas.errors import SexpgpuError, Span
from sexpgpu.schemas.precision import Precision


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


def read_run(evaluator: Evaluator, datum: ListDatum, environment: Environment) -> Run:
    """The run of a `defrun` form.

    Raises E-FORM-001 where its items are no keywords and values, E-RUN-001 at the key or value that
    is wrong, and what evaluating the values raises.
    """
    items = datum.items[1:]
    values: dict[str, Any] = {}
    spans: dict[str, Span | None] = {}
    for index in range(0, len(items), 2):
        key = items[index]
        if not isinstance(key, Keyword) or index + 1 == len(items) or key.name in values:
            raise SexpgpuError(
                "E-FORM-001",
                "`defrun` has keywords and values in turn, each keyword once",
                span=key.span,
                expected="(defrun :train train :steps 1000 :batch 32 :optimizer (adamw :lr 1e-3))",
            )
        if key.name not in KEYS:
            raise SexpgpuError(
                "E-RUN-001",
                f"`defrun` has no key `:{key.name}`",
                span=key.span,
                expected=" ".join([f":{name}" for name in KEYS]),
                help=did_you_mean(key.name, KEYS, ":"),
            )
        values[key.name] = evaluator.evaluate(items[index + 1], environment)
        spans[key.name] = items[index + 1].span
    return _make_run(_Reader(values, spans, datum.span))


def _make_run(reader: _Reader) -> Run:
    train = reader.one("train", Loader, "a loader")
    if train is None:
        raise reader.fail("train", "`defrun` needs `:train`, a loader")
    return Run(
        train=train,
        eval=reader.one("eval", Loader, "a loader"),
        steps=reader.whole("steps", 1) or 1000,
        batch=reader.whole("batch", 1) or 32,
        optimizer=reader.recipe("optimizer") or default_recipe("adamw"),
        schedule=reader.recipe("schedule"),
        clip=reader.clip(),
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
        value = self.values[key]
        return self.fail(
            key,
            f"`:{key}` of `defrun` is of another kind or out of range",
            came=portray(value),
            expected=expected,
            help=f"call it: `({value.name})`" if isinstance(value, Builtin) else None,
        )

    def one(self, key: str, kind: type, expected: str) -> Any:
        value = self.values.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.wrong(key, expected)
        return value

    def recipe(self, kind: str) -> Recipe | None:
        value = self.values.get(kind)
        if value is not None and not (isinstance(value, Recipe) and value.kind == kind):
            names = ", ".join(f"({name} …)" for name, of, _ in RECIPES if of == kind)
            raise self.wrong(kind, f"{with_article(kind)}: {names}")
        return value

    def clip(self) -> Recipe | None:
        value = self.values.get("clip")
        if isinstance(value, int | float) and value is not True and 0 < value < math.inf:
            return Recipe("clipping", "clip-norm", {"norm": float(value)})
        if value is not None and not (isinstance(value, Recipe) and value.kind == "clipping"):
            raise self.wrong("clip", "a norm above 0, (clip-norm 1.0) or (clip-value 1.0)")
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
