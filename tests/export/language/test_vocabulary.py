"""The names of the language: every operation under its own, each with a signature that reads."""

from __future__ import annotations

import pytest

from sexpgpu.export.language.signature import signature_of
from sexpgpu.export.language.values import Builtin
from sexpgpu.export.language.vocabulary import CHAINED, COMPARED, LAYERS, signature_text
from sexpgpu.export.operations.operation import all_operations
from sexpgpu.export.operations.signature import Attribute
from support.programs import session, value_of

NAMES = session()[1].top.values
OPERATIONS = [name for name in all_operations() if name not in ("constant", "scan")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_a_function_of_the_language(name: str) -> None:
    builtin = NAMES[name]
    assert isinstance(builtin, Builtin)
    if name in (*CHAINED, *COMPARED, *LAYERS, "max", "min"):
        return
    operation = all_operations()[name].signature
    assert list(builtin.signature.keys) == list(operation.keywords)


@pytest.mark.parametrize("name", OPERATIONS)
def test_signatures_are_written_as_parameter_lists(name: str) -> None:
    operation = all_operations()[name].signature
    signature = signature_of(signature_text(operation))
    assert list(signature.keys) == list(operation.keywords)
    for name, parameter in operation.keywords.items():
        if isinstance(parameter, Attribute) and not parameter.required:
            assert signature.keys[name] is not None, name


def test_names_of_the_vocabulary_of_the_design() -> None:
    """What design calls the operations: nothing of it may be missing."""
    words = """
        + - * / pow mod neg abs sign floor ceil round exp log log1p expm1 sqrt rsqrt sin cos tan
        tanh sigmoid softplus relu leaky-relu elu silu gelu erf hard-swish minimum maximum clip
        = != < <= > >= logical-and logical-or logical-not bitwise-and bitwise-or bitwise-xor
        bitwise-not is-finite where cast reshape transpose permute broadcast-to squeeze unsqueeze
        concat stack split slice pad flip roll tile iota eye one-hot full zeros ones sum mean max
        min prod any all argmax argmin variance logsumexp cumsum top-k sort norm take take-along
        gather-nd scatter-add matmul einsum softmax log-softmax layer-normalize rms-normalize
        attention rotary conv max-pool average-pool resize cross-entropy scan lstm gru dropout
        random-normal random-uniform list get assoc nth first rest len range map fold zip
        concat-lists reverse str error assert shape dim dtype rank param metric counter guard
        text arrays csv images linear embedding layer-norm rms-norm group-norm batch-norm mlp
        swiglu self-attention conv1d conv2d mixture f32 f64 bf16 i32 i64 bool
    """.split()
    missing = [word for word in words if word not in NAMES]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(map relu (list 1 -2))", (1, 0)),
        ("(apply + (list 1 2 3))", 6),
        ("(fold maximum 0 (list 1 3 2))", 3),
        ("(map (fn (f) (f 4.0)) (list sqrt neg))", (2.0, -4.0)),
    ],
)
def test_operations_are_values(text: str, value: object) -> None:
    assert value_of(text) == value


def test_dtypes_are_values() -> None:
    assert value_of("(map (fn (d) (str d)) (list f32 f64 bf16 i32 i64 bool))") == (
        *("f32", "f64", "bf16", "i32", "i64", "bool"),
    )
