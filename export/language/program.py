"""A whole program: one file under a variant and knobs, and what it defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.data import ListDatum
from sexpgpu.export.language.declarations import parameter_builtins
from sexpgpu.export.language.environment import Environment
from sexpgpu.export.language.evaluator import Evaluator
from sexpgpu.export.language.knobs import Knob, Knobs
from sexpgpu.export.language.library import library
from sexpgpu.export.language.loaders import Loader, loader_builtins
from sexpgpu.export.language.loading import load_builtin
from sexpgpu.export.language.models import (
    Model,
    ModelClass,
    assign_paths,
    defmodel_form,
    walk_parts,
)
from sexpgpu.export.language.prelude import prelude_data
from sexpgpu.export.language.recipes import recipe_builtins
from sexpgpu.export.language.run import Run, read_run
from sexpgpu.export.language.suggestion import misnamed
from sexpgpu.export.language.tensors import Parameter
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin, Function, portray
from sexpgpu.export.language.vocabulary import LAYERS, operation_or_layer, tensor_builtins
from sexpgpu.schemas.errors import Frame, SexpgpuError, Source, Span
from sexpgpu.schemas.precision import Precision


@dataclass
class Program:
    """What one evaluation of a file gave.

    `sources` are the texts that it was made of, the file itself first.
    """

    path: Path
    variant: str | None
    knobs: dict[str, Knob]
    evaluator: Evaluator
    environment: Environment
    tracer: Tracer
    run: Run | None
    sources: list[Source]

    @property
    def slug(self) -> str:
        """A short name: the file's, and the variant's."""
        return self.path.stem + (f"-{self.variant}" if self.variant else "")

    @property
    def precision(self) -> Precision:
        """In what the run's evaluation does its products."""
        return self.run.precision if self.run is not None else "f32"

    @property
    def model(self) -> Any:
        """The model, or whatever function stands for it.  Raises E-MODEL-001."""
        value = self.defined("model")
        if not isinstance(value, Model | Function | Builtin):
            raise self._no_model(value)
        return value

    def _no_model(self, value: object) -> SexpgpuError:
        message, came, help = f"{self.path} defines no `model`", None, None
        if value is None:
            help = misnamed("model", self.environment.top.own)
        else:
            message, came = "what `model` is defined as is no model", portray(value)
        if isinstance(value, ModelClass):
            help = f"make one: `{value.signature.usage(value.call_name)}`"
        return SexpgpuError(
            "E-MODEL-001",
            message,
            span=self.span_of("model"),
            came=came,
            expected="(def model (my-model 32 64))",
            help=help,
        )

    def defined(self, name: str) -> Any:
        """What the program itself defines under a name; None where it does not."""
        top = self.environment.top
        return top.values[name] if name in top.own else None

    def span_of(self, name: str | None) -> Span | None:
        """Where the program defines a name."""
        return self.environment.top.own.get(name or "")

    def call(
        self, name: str, arguments: Sequence[object], keywords: Mapping[str, object] | None = None
    ) -> Any:
        """Calls what the program defines as `model`, `prepare` or `loss`.

        What is wrong with the call itself is shown where the name is defined.
        """
        try:
            return self.evaluator.apply(self.defined(name), arguments, keywords)
        except SexpgpuError as error:
            if error.span is None:
                error.span = self.span_of(name)
                shown = " and ".join([portray(argument) for argument in arguments])
                error.came = error.came or f"`{name}` is called with {shown}"
            elif error.frames and error.span.source.library and error.user_span is error.span:
                # A layer stands as the model itself: its definition is all that is the user's own.
                error.frames[-1] = Frame(error.frames[-1].name, self.span_of(name))
            raise

    def parameters(self) -> dict[str, Parameter]:
        """Every parameter by path: the model's in the order of its parts, then those that other
        definitions at the top level hold.
        """
        values = [self.model, *(self.defined(name) for name in self.environment.top.own)]
        seen: set[int] = set()
        return {
            item.path: item
            for value in values
            for _, item in walk_parts(value, "", seen)
            if isinstance(item, Parameter)
        }

    def records(self) -> Loader | None:
        """The loader whose records the model is made for."""
        if self.run is not None:
            return self.run.train
        for name in ("train", "record", "eval"):
            value = self.defined(name)
            if isinstance(value, Loader):
                return value
        return None


def compile_program(
    path: Path, variant: str | None = None, overrides: Mapping[str, object] | None = None
) -> Program:
    """Evaluates a file.  Raises SexpgpuError for whatever is wrong in it."""
    tracer = Tracer()
    knobs = Knobs(variant, overrides or {})
    runs: list[Run] = []

    def defrun(evaluator: Evaluator, datum: ListDatum, environment: Environment) -> None:
        if runs:
            raise SexpgpuError("E-NAME-002", "`defrun` stands twice", span=datum.span)
        runs.append(read_run(evaluator, datum, environment))

    def skip(evaluator: Evaluator, datum: ListDatum, environment: Environment) -> None:
        """Variants were read before the program ran."""

    evaluator = Evaluator(
        {
            "defmodel": defmodel_form(tracer),
            "defknob": knobs.defknob,
            "defvariant": skip,
            "defrun": defrun,
        }
    )
    environment = evaluator.environment(base_names(evaluator, tracer))
    for datum in evaluator.inclusions.forms(path, "defvariant"):
        knobs.defvariant(evaluator, datum, environment)
    evaluator.run_file(path, environment)
    knobs.finish()
    program = Program(
        path,
        variant,
        knobs.known,
        evaluator,
        environment,
        tracer,
        runs[0] if runs else None,
        evaluator.inclusions.sources,
    )
    _assign(program)
    return program


def base_names(evaluator: Evaluator, tracer: Tracer) -> dict[str, object]:
    """Every name that a program starts with, the prelude's among them."""
    base: dict[str, object] = {dtype.value: dtype for dtype in DType}
    base |= library()
    builtins = [
        *loader_builtins(),
        *recipe_builtins(),
        *parameter_builtins(),
        load_builtin(),
    ]
    base |= {builtin.name: builtin for builtin in builtins}
    base |= tensor_builtins(tracer)
    prelude = evaluator.environment(base)
    for datum in prelude_data():
        evaluator.run_form(datum, prelude)
    base = dict(prelude.top.values)
    for name, layer in LAYERS.items():
        made = base[layer]
        assert isinstance(made, ModelClass)
        base[name] = operation_or_layer(tracer, name, made)
    return base


def _assign(program: Program) -> None:
    """Paths: the model's parts first, then parameters that stand at the top level by their name."""
    names = [name for name in program.environment.top.own if name != "model"]
    values: list[tuple[str, object]] = [(name, program.defined(name)) for name in names]
    if isinstance(model := program.defined("model"), Model):
        values.insert(0, ("", model))
    assign_paths(values)
