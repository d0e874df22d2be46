"""Activation functions by the names that configurations give them."""

from __future__ import annotations

from sexpgpu.export.language.suggestion import did_you_mean
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.forms import Form

_QUICK_GELU: Form = ["fn", ["x"], ["*", "x", ["sigmoid", ["*", "1.702", "x"]]]]

#: transformers' names (activations.py), and the function of the language.
ACTIVATIONS: dict[str, Form] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_accurate": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "quick_gelu": _QUICK_GELU,
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}


def activation_of(configuration: Configuration, key: str, default: str) -> Form:
    """The function that a key names.  Raises E-IMPORT-004 for one that is not known."""
    word = configuration.word(key, default)
    if word not in ACTIVATIONS:
        configuration.unsupported(
            key,
            "the activation is unknown",
            expected=", ".join(ACTIVATIONS),
            help=did_you_mean(word, ACTIVATIONS),
        )
    return ACTIVATIONS[word]
