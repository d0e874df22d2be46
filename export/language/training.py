"""The model in training: traced from a batch of records to the loss, to see that it is sound."""

from __future__ import annotations

from sexpgpu.export.language.alone import apply_model, inputs_of, prepare
from sexpgpu.export.language.data import Keyword
from sexpgpu.export.language.program import Program
from sexpgpu.export.language.tensors import Tensor
from sexpgpu.export.language.values import describe
from sexpgpu.schemas.errors import SexpgpuError


def trace_training(program: Program) -> list[str] | None:
    """The names of what training measures, the loss first; None for a program without `loss`.

    Raises E-MODEL-004 where `loss` gives no scalar, and whatever is wrong on the way to it.
    """
    loss = program.defined("loss")
    if loss is None:
        return None
    tracer = program.tracer
    tracer.training = True
    try:
        prepared = prepare(program)
        given = inputs_of(prepared)
        prediction = apply_model(program, list(given) if isinstance(given, tuple) else [given])
        result = program.evaluator.apply(loss, [prediction, prepared])
    finally:
        tracer.training = False
    measures = _measures(result)
    notes = [name for kind, name in tracer.notes if kind != "guard"]
    return list(dict.fromkeys([*measures, *notes]))


def _measures(result: object) -> list[str]:
    """The names in what `loss` returned."""
    if isinstance(result, Tensor):
        _check_scalar("the loss", result)
        return ["loss"]
    plist = isinstance(result, tuple) and result and not len(result) % 2
    if not plist or not all(isinstance(key, Keyword) for key in result[::2]):  # type: ignore[index]
        raise SexpgpuError(
            "E-MODEL-004",
            "`loss` returns a scalar, or a plist with `:loss`",
            came=describe(result),
        )
    assert isinstance(result, tuple)
    named = {key.name: value for key, value in zip(result[::2], result[1::2], strict=True)}
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise SexpgpuError(
                "E-MODEL-004", f"`:{name}` of the loss is no tensor", came=describe(value)
            )
        _check_scalar(f"`:{name}`", value)
    if "loss" not in named:
        raise SexpgpuError(
            "E-MODEL-004", "the plist that `loss` returns has no `:loss`", came=", ".join(named)
        )
    return ["loss", *(name for name in named if name != "loss")]


def _check_scalar(what: str, value: Tensor) -> None:
    if value.type.shape or not value.type.dtype.is_float:
        raise SexpgpuError(
            "E-MODEL-004",
            f"{what} is no scalar",
            came=str(value.type),
            expected="a tensor [] of floats",
            help="reduce it with `mean`",
        )
