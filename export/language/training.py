"""The model in training: traced from a batch of records to the loss, to see that it is sound."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.export.language.alone import apply_model, inputs_of, prepare
from sexpgpu.export.language.plists import is_plist
from sexpgpu.export.language.program import Program
from sexpgpu.export.language.suggestion import misnamed
from sexpgpu.export.language.tensors import Tensor
from sexpgpu.export.language.values import portray
from sexpgpu.schemas.errors import SexpgpuError


def trace_training(program: Program) -> list[str] | None:
    """The names of what training measures, the loss first; None for a program without `loss`.

    Raises E-MODEL-004 where `loss` gives no scalar, and whatever is wrong on the way to it.
    """
    if program.defined("loss") is None:
        return None
    prepared = prepare(program)
    with program.tracer.mode(training=True):
        given = inputs_of(program, prepared)
        prediction = apply_model(program, list(given) if isinstance(given, tuple) else [given])
        result = program.call("loss", [prediction, prepared])
        notes = [name for kind, name in program.tracer.notes if kind != "guard"]
    return list(dict.fromkeys([*_measures(program, result), *notes]))


def _measures(program: Program, result: object) -> list[str]:
    """The names in what `loss` returned."""
    if not is_plist(result):
        _check_scalar(program, "what `loss` returns", result)
        return ["loss"]
    named = {key.name: value for key, value in zip(result[::2], result[1::2], strict=True)}
    if "loss" not in named:
        raise _no_loss(program, "the plist that `loss` returns has no `:loss`", result, [*named])
    for name, value in named.items():
        _check_scalar(program, f"`:{name}` of what `loss` returns", value)
    return ["loss", *(name for name in named if name != "loss")]


def _check_scalar(program: Program, what: str, value: object) -> None:
    if not isinstance(value, Tensor) or value.type.shape or not value.type.dtype.is_float:
        raise _no_loss(program, f"{what} is no scalar", value)


def _no_loss(
    program: Program, message: str, value: object, names: Sequence[str] = ()
) -> SexpgpuError:
    help = misnamed("loss", names, ":")
    if isinstance(value, Tensor):
        help = "reduce it with `mean`" if value.type.shape else "convert it: `(cast x f32)`"
    return SexpgpuError(
        "E-MODEL-004",
        message,
        span=program.span_of("loss"),
        came=portray(value),
        expected="a tensor [] of floats, or a plist of such with `:loss`",
        help=help,
    )
