"""What is not written: a model that is damaged, not whole, or in the way of something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.writing import import_model
from support.importing import WINDOW, Case, change, llama, made, rewrite

transformers = pytest.importorskip("transformers")


def error_of(path: Path, target: Path, **options: Any) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        import_model(path, target, **options)
    assert list(target.parent.glob(".*.sx")) == []
    return caught.value


def test_a_tensor_that_is_missing_or_of_another_shape(tmp_path: Path) -> None:
    case, target = llama(tmp_path), tmp_path / "new.sx"
    with pytest.raises(SexpgpuError) as caught:
        change(case, intermediate_size=41)
    assert caught.value.code == "E-IMPORT-005"
    assert caught.value.came == ("`model.layers.0.mlp.gate_proj.weight`, f32 [40, 24] in the file")
    assert caught.value.expected == "`model.layers.0.mlp.gate_proj.weight`, f32 [41, 24]"
    with pytest.raises(SexpgpuError):
        rewrite(case, **{"model.norm.weight": None})
    error = error_of(tmp_path / "model", target)
    assert error.code == "E-IMPORT-005"
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "E-LOAD-001"),
        ("version https://git-lfs.github.com/spec/v1\n", "E-LOAD-004"),
        ("x" * 99, "E-TENSORS-001"),
    ],
)
def test_one_of_several_files_is_not_there(tmp_path: Path, content: str | None, code: str) -> None:
    """What was not fetched, or in part, is not said to be of other tensors."""
    case = llama(tmp_path)
    (tmp_path / "model" / "model.safetensors").unlink()
    case.model.save_pretrained(tmp_path / "model", max_shard_size="8KB")
    second = sorted((tmp_path / "model").glob("*.safetensors"))[1]
    second.unlink()
    if content is not None:
        second.write_text(content)
    assert error_of(tmp_path / "model", tmp_path / "new.sx").code == code


def test_a_head_that_the_file_has_not(tmp_path: Path) -> None:
    """As sentence-transformers saves what it trained from a masked language model."""
    config = transformers.RobertaConfig(
        vocab_size=37, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=30, max_position_embeddings=20,
    )  # fmt: skip
    case = Case(made("RobertaModel", config), tmp_path, window=WINDOW)
    for head in ("ForMaskedLM", "ForQuestionAnswering", "ForTokenClassification"):
        with pytest.raises(SexpgpuError) as caught:
            change(case, architectures=[f"Roberta{head}"])
        assert caught.value.code == "E-IMPORT-005"
        assert caught.value.help is not None
        assert caught.value.help.endswith("read as another class: --as RobertaModel")
    target = tmp_path / "below.sx"
    imported = import_model(tmp_path / "model", target, as_class="RobertaModel")
    assert (imported.notes, imported.unused) == ([], [])
    with pytest.raises(SexpgpuError) as caught:
        change(case, architectures=["RobertaForMaskedLM"], num_hidden_layers=2)
    assert (caught.value.code, caught.value.help) == ("E-IMPORT-005", None)


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    case = llama(tmp_path)
    program = case.imported.program
    program.write_text("mine")
    assert error_of(tmp_path / "model", program).code == "E-IMPORT-006"
    assert program.read_text() == "mine"
    folder = tmp_path / "folder.sx"
    folder.mkdir()
    assert error_of(tmp_path / "model", folder, force=True).code == "E-IMPORT-006"
    assert error_of(tmp_path / "model", tmp_path / "none" / "a.sx").code == "E-FILE-001"
    import_model(tmp_path / "model", program, force=True)
    assert "defmodel llama" in program.read_text()
    for name in ("model.safetensors", "config.json"):
        file = tmp_path / "model" / name
        before = file.read_bytes()
        error = error_of(tmp_path / "model", file, force=True)
        assert (error.code, error.help) == (
            "E-IMPORT-006",
            "it is no program: choose another name",
        )
        assert file.read_bytes() == before
