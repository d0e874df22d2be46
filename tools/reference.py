"""Writes the pages under docs/ that repeat what the code says, from the code.

`python -m sexpgpu.tools.reference` writes them; with `--check` it writes nothing, and fails when a
page is not what would be written.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from sexpgpu.export.graph.types import DType
from sexpgpu.export.language.arithmetic import number_builtins
from sexpgpu.export.language.data import Datum, ListDatum, write
from sexpgpu.export.language.declarations import parameter_builtins
from sexpgpu.export.language.library import general_builtins
from sexpgpu.export.language.lists import list_builtins
from sexpgpu.export.language.loaders import loader_builtins
from sexpgpu.export.language.loading import load_builtin
from sexpgpu.export.language.plists import plist_builtins
from sexpgpu.export.language.prelude import prelude_sources
from sexpgpu.export.language.reader import read_source
from sexpgpu.export.language.recipes import recipe_builtins
from sexpgpu.export.language.strings import string_builtins
from sexpgpu.export.language.syntax import USAGE
from sexpgpu.export.language.tracing import Tracer
from sexpgpu.export.language.values import Builtin
from sexpgpu.export.language.vocabulary import LAYERS, signature_text, tensor_builtins
from sexpgpu.export.operations.operation import Operation, all_operations
from sexpgpu.export.operations.signature import Attribute
from sexpgpu.schemas.checkpoint import checkpoint_schema
from sexpgpu.schemas.codes import CODES
from sexpgpu.schemas.document import json_schema
from sexpgpu.schemas.model import Model

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "python -m sexpgpu.tools.reference"
MADE = f"<!-- Written by `{COMMAND}`; do not edit. -->\n"


def pages() -> dict[str, str]:
    """Every page by its path under the project."""
    return {
        "docs/operations.md": operations_page(),
        "docs/library.md": library_page(),
        "docs/layers.md": layers_page(),
        "docs/errors.md": errors_page(),
        "docs/schemas/model.schema.json": _json(json_schema(Model, title="model.json")),
        "docs/schemas/checkpoint.schema.json": _json(checkpoint_schema()),
    }


def _json(schema: dict[str, object]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def operations_page() -> str:
    """Every operation, by family."""
    builtins = tensor_builtins(Tracer())
    families: dict[str, list[Operation]] = {}
    for operation in all_operations().values():
        families.setdefault(operation.family, []).append(operation)
    lines = [
        MADE,
        "# Operations\n",
        "What a program computes with tensors. Each entry gives the call, the dtypes it takes, the "
        "meaning, the ONNX operators it becomes, its rules, by number, and an example with what it "
        "gives. Shapes broadcast, and dtypes are never mixed, unless an entry says otherwise. "
        "How to write a call is told in [the language](language.md).\n",
    ]
    lines += [
        f"- **{family}**: " + " ".join(f"`{operation.name}`" for operation in operations)
        for family, operations in families.items()
    ]
    for family, operations in families.items():
        lines.append(f"\n## {family}")
        for operation in operations:
            lines += ["", *_operation_entry(operation, builtins)]
    return "\n".join(lines) + "\n"


def _operation_entry(operation: Operation, builtins: Mapping[str, object]) -> Iterator[str]:
    meaning, onnx = _split_onnx(inspect.getdoc(type(operation)) or "")
    expression, shown = operation.example
    yield f"### {operation.name}\n"
    yield _lisp(_usage(operation, builtins)) + "\n"
    yield from (f"- {line}" for line in _takes(operation))
    yield "\n" + meaning
    yield f"\n*ONNX*: {onnx}"
    if operation.constraints:
        yield ""
        yield from (f"{i}. {rule}" for i, rule in enumerate(operation.constraints, 1))
    yield "\n" + _lisp(f"{expression}\n;=> {shown}")


def _usage(operation: Operation, builtins: Mapping[str, object]) -> str:
    """The call as the language takes it; for two operations that is another name's."""
    name = "tensor" if operation.name == "constant" else operation.name
    builtin = builtins[name]
    if isinstance(builtin, Builtin):
        return builtin.signature.usage(name)
    inner = signature_text(operation.signature)[1:-1]
    return f"({name} {inner})"


def _takes(operation: Operation) -> Iterator[str]:
    """The dtypes of the operands, those of one dtype together, and the kinds of the attributes."""
    groups: dict[tuple[str, str], list[str]] = {}
    for operand in operation.signature.operands:
        dtypes = " ".join(dtype for dtype in DType if dtype in operand.dtypes)
        groups.setdefault((operand.group, dtypes), []).append(f"`{operand.name}`")
    for (group, dtypes), names in groups.items():
        together = ", all of one dtype" if group and len(names) > 1 else ""
        yield f"{', '.join(names)}: {dtypes}{together}"
    for parameter in operation.signature.parameters:
        if isinstance(parameter, Attribute):
            kinds = " ".join(f"`:{choice}`" for choice in parameter.choices)
            yield f"`{parameter.name}`: {kinds if parameter.kind == 'keyword' else parameter.kind}"


_ONNX = re.compile(r"(?:^|(?<=\s))ONNX: ")


def _split_onnx(text: str) -> tuple[str, str]:
    """A docstring's meaning, and what it says after `ONNX:`."""
    *_, last = _ONNX.finditer(text)
    return text[: last.start()].strip(), " ".join(text[last.end() :].split())


def library_page() -> str:
    """Every other name that a program starts with."""
    operations = all_operations()
    numbers = number_builtins()
    tensors = [
        builtin
        for name, builtin in tensor_builtins(Tracer()).items()
        if name not in operations and name not in numbers and isinstance(builtin, Builtin)
    ]
    lines = [
        MADE,
        "# The library\n",
        "Every name that a program starts with, but for the [operations](operations.md) on tensors "
        "and the [layers](layers.md). A `&key` parameter is written as a keyword, "
        "`(param (list 3) :dtype f64)`; the rest of the notation is told in "
        "[the language](language.md).\n",
        "## Special forms\n",
        "They are no values, and their names cannot be bound.\n",
        _lisp("\n".join([*USAGE.values(), *_PROGRAM_FORMS])),
    ]
    sections: list[tuple[str, str, Iterable[Builtin]]] = [
        ("Numbers", _NUMBERS, numbers.values()),
        ("Lists", "", list_builtins().values()),
        ("Plists", "A plist alternates keywords and values.", plist_builtins().values()),
        ("Strings", "", string_builtins().values()),
        ("Anything", "", general_builtins().values()),
        ("Tensors", "", tensors),
        ("Parameters", "", [*parameter_builtins(), load_builtin()]),
        ("Loaders", "What a run reads; declared here, read in training.", loader_builtins()),
        ("Training", "What `defrun` takes.", recipe_builtins()),
    ]
    for title, text, builtins in sections:
        lines.append(f"\n## {title}\n")
        if text:
            lines.append(text + "\n")
        lines += ["| call | gives |", "| --- | --- |"]
        lines += [f"| `{b.signature.usage(b.name)}` | {_cell(b.about)} |" for b in builtins]
    return "\n".join(lines) + "\n"


_PROGRAM_FORMS = (
    "(defmodel name (parameter …) (parts name value …) (apply (input …) body …))",
    '(defknob name default "what it is")',
    "(defvariant name :knob value …)",
    "(defrun :train loader :steps 1000 :batch 32 …)",
)
_NUMBERS = (
    "What is an operation too is one as soon as a tensor comes; these are its meanings for numbers "
    "alone. Whole numbers have 64 bits, and one that would be larger is an error. `pi` is "
    f"{math.pi}."
)


def layers_page() -> str:
    """The models and functions of the prelude, each with the comment above it."""
    lines = [
        MADE,
        "# Layers\n",
        "The prelude: models and functions written in the language itself, in "
        "[`export/language/layers/`](../export/language/layers). "
        + ", ".join(f"`({short} …)` is `({layer} …)`" for short, layer in LAYERS.items())
        + " where no tensor comes first.",
    ]
    for name, source in prelude_sources().items():
        lines += ["", f"## {name.replace('-', ' ').capitalize()}"]
        for datum in read_source(source):
            lines += _layer(datum, source.text.split("\n"))
    return "\n".join(lines) + "\n"


def _layer(datum: Datum, text: Sequence[str]) -> list[str]:
    assert isinstance(datum, ListDatum)
    assert datum.span is not None
    form, name, parameters = map(write, datum.items[:3])
    about = _comment_above(text, datum.span.line)
    if form == "defmodel":
        apply = datum.items[-1]
        assert isinstance(apply, ListDatum)
        about.append(f"It makes a model, which is called with `{write(apply.items[1])}`.")
    usage = " ".join([name, *_words(parameters)])
    return ["", f"### {name}\n", _lisp(f"({usage})"), "", " ".join(about)]


def _words(parameters: str) -> list[str]:
    return [parameters[1:-1]] if parameters != "()" else []


def _comment_above(source: Sequence[str], line: int) -> list[str]:
    """The comment that ends right above a line (which counts from 1)."""
    start = line - 1
    while start and source[start - 1].startswith(";"):
        start -= 1
    return [text.lstrip("; ").rstrip() for text in source[start : line - 1]]


def errors_page() -> str:
    """Every error code, and how to mend what it says."""
    lines = [
        MADE,
        "# Errors\n",
        "Every error has a code that is never given to another meaning; `sexpgpu explain CODE` "
        "prints its entry. Commands end with status 1, after wrong usage with 2.",
    ]
    for code, explanation in CODES.items():
        title = explanation.title[0].upper() + explanation.title[1:]
        lines += ["", f"## {code}\n", f"**{title}.** {explanation.text}"]
    return "\n".join(lines) + "\n"


def _lisp(text: str) -> str:
    return f"```lisp\n{text}\n```"


def _cell(text: str) -> str:
    return text.split("\n")[0].replace("|", "\\|")


def stale_pages(made: Mapping[str, str]) -> list[str]:
    """Those of the pages that the files under docs/ are not, or that are missing there."""
    return [
        path
        for path, text in made.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text("utf-8") != text
    ]


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail where a page is stale.")
def main(check: bool) -> None:
    """Write the pages under docs/ that are made from the code."""
    made = pages()
    stale = stale_pages(made)
    if check and stale:
        click.echo(f"not what the code says: {', '.join(stale)}; run `{COMMAND}`", err=True)
        raise SystemExit(1)
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(made[path], "utf-8")
        click.echo(f"wrote {path}")


if __name__ == "__main__":
    main()
