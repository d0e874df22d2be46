"""The programs that are measured compile to models of the sizes that they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.export.graph.document import ModelFile, write_model
from sexpgpu.export.language.alone import trace_alone
from sexpgpu.export.language.program import compile_program
from sexpgpu.tools.bench import compile as compiling
from sexpgpu.tools.bench.models import TRANSFORMERS


def _compiled(text: str, folder: Path) -> tuple[ModelFile, int]:
    path = folder / "model.sx"
    path.write_text(text)
    (folder / "nothing.txt").write_text("")
    program = compile_program(path, None, {})
    alone = trace_alone(program)
    elements = sum(parameter.elements for parameter in program.parameters().values())
    return ModelFile(alone.graph), elements


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer(name: str, tmp_path: Path) -> None:
    transformer = TRANSFORMERS[name]
    model, elements = _compiled(transformer.program(), tmp_path)
    (given,), (made,) = model.graph.inputs, model.graph.outputs.values()
    assert given.type.shape[1:] == (transformer.window,)
    assert made.type.shape[1:] == (transformer.window, transformer.vocabulary)
    assert transformer.call_bytes == 4 * transformer.window
    if name == "large":
        assert 480e6 < 4 * elements < 520e6


def test_llama(tmp_path: Path) -> None:
    model, elements = _compiled(compiling._PROGRAM, tmp_path)
    assert 6.7e9 < elements < 6.8e9
    assert len(write_model(model, "test")) > 100_000
