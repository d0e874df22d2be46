"""Loaders: what a batch of their records is, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.export.language.loaders import Loader
from support.programs import failure_of, place, value_of


def loader(text: str) -> Loader:
    found = value_of(text)
    assert isinstance(found, Loader)
    return found


def fields(text: str) -> dict[str, str]:
    return {name: str(type) for name, type in loader(text).fields.items()}


def test_text() -> None:
    assert fields('(text "verses.txt" :window 16)') == {"tokens": "[batch, 16] i32"}
    found = loader(
        '(text "v.txt" :window 16 :tokenizer :characters :symbols 32 :split (list 0 0.9))'
    )
    assert (found.kind, found.file) == ("text", "v.txt")
    assert found.options == {
        "window": 16,
        "tokenizer": "characters",
        "symbols": 32,
        "split": (0.0, 0.9),
    }
    assert loader('(text "v.txt" :window 1)').options["tokenizer"] == "bytes"
    tokenized = loader('(text "v.txt" :window 1 :tokenizer "tokenizer.json")')
    assert tokenized.options["tokenizer"] == "tokenizer.json"


def test_csv() -> None:
    text = '(csv "data.csv" :fields (list :x f32 :label i32 :many (list f64 3)) :separator ";")'
    assert fields(text) == {"x": "[batch] f32", "label": "[batch] i32", "many": "[batch, 3] f64"}
    assert loader(text).options == {"separator": ";"}


def test_images() -> None:
    assert fields('(images "folder" :size 32)') == {
        "image": "[batch, 3, 32, 32] f32",
        "label": "[batch] i32",
    }
    assert fields('(images "folder" :size (list 16 8) :channels 1)')["image"] == (
        "[batch, 1, 16, 8] f32"
    )


def test_fields() -> None:
    text = "(fields :tokens (list i32 16) :mask (list bool 16) :one f32 :none (list bf16 0 3))"
    assert fields(text) == {
        "tokens": "[batch, 16] i32",
        "mask": "[batch, 16] bool",
        "one": "[batch] f32",
        "none": "[batch, 0, 3] bf16",
    }


def test_arrays_whose_types_are_given_need_no_file() -> None:
    assert fields('(arrays "none.npz" :fields (list :x (list f32 28 28)))') == {
        "x": "[batch, 28, 28] f32"
    }


def test_arrays_are_told_by_their_file(tmp_path: Path) -> None:
    arrays = {
        "x": np.zeros((10, 3, 2), np.float32),
        "y": np.zeros(10, np.int64),
        "half": np.zeros((10, 1), np.float16),
        "pixels": np.zeros((10, 4), np.uint8),
        "flags": np.zeros(10, bool),
    }
    found = {
        "x": "[batch, 3, 2] f32",
        "y": "[batch] i64",
        "half": "[batch, 1] f32",
        "pixels": "[batch, 4] i32",
        "flags": "[batch] bool",
    }
    np.savez(tmp_path / "a.npz", **arrays)
    assert fields(f'(arrays "{tmp_path}/a.npz")') == found
    save_file(arrays, tmp_path / "a.safetensors")
    assert fields(f'(arrays "{tmp_path}/a.safetensors")') == found


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.float32(1)}, "`x` has rank 0, and records lie along axis 0"),
        ({"x": np.zeros(3, np.uint64)}, "`x` is of u64"),
        ({}, "holds no arrays"),
    ],
)
def test_arrays_that_are_no_records(
    tmp_path: Path, arrays: dict[str, np.ndarray], said: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert said in failure_of(f'(arrays "{tmp_path}/a.npz")', "E-DATA-001").message


def test_arrays_without_their_file() -> None:
    error = failure_of('(arrays "none.npz")', "E-DATA-001")
    assert "none.npz" in error.message
    assert place(error) == (1, 9, '"none.npz"')
    assert error.help is not None
    assert ":fields" in error.help


def test_arrays_of_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    error = failure_of(f'(arrays "{tmp_path}/a.npz")', "E-DATA-001")
    assert "it is not a zip file" in error.message


@pytest.mark.parametrize(
    ("text", "code", "under"),
    [
        ('(text "v.txt")', "E-CALL-002", '(text "v.txt")'),
        ('(csv "v.csv")', "E-CALL-002", '(csv "v.csv")'),
        ('(images "f")', "E-CALL-002", '(images "f")'),
        ("(text 3 :window 4)", "E-TYPE-001", "3"),
        ('(text "" :window 4)', "E-VALUE-001", '""'),
        ('(text "v" :window 0)', "E-VALUE-001", "0"),
        ('(text "v" :window 4.0)', "E-TYPE-001", "4.0"),
        ('(text "v" :window 4 :tokenizer :words)', "E-TYPE-001", ":words"),
        ('(text "v" :window 4 :tokenizer f32)', "E-TYPE-001", "f32"),
        ('(text "v" :window 4 :symbols 1)', "E-VALUE-001", "1"),
        ('(text "v" :window 4 :split 0.5)', "E-TYPE-001", "0.5"),
        ('(text "v" :window 4 :split (list 0.5 0.2))', "E-TYPE-001", "(list 0.5 0.2)"),
        ('(text "v" :window 4 :split (list 0 2))', "E-TYPE-001", "(list 0 2)"),
        ('(text "v" :window 4 :split (list false true))', "E-TYPE-001", "(list false true)"),
        ('(text "v" :windows 4)', "E-CALL-003", ":windows"),
        ('(csv "v" :fields (list :x f32) :separator 1)', "E-TYPE-001", "1"),
        ('(csv "v" :fields (list :x f32) :separator "::")', "E-VALUE-001", '"::"'),
        ('(csv "v" :fields (list :x f32) :separator "\\n")', "E-VALUE-001", '"\\n"'),
        ('(csv "v" :fields f32)', "E-TYPE-001", "f32"),
        ('(csv "v" :fields (list :x "f32"))', "E-TYPE-001", '(list :x "f32")'),
        ('(images "f" :size (list 1 2 3))', "E-TYPE-001", "(list 1 2 3)"),
        ('(images "f" :size 8 :channels 0)', "E-VALUE-001", "0"),
        ("(fields)", "E-TYPE-001", "(fields)"),
        ("(fields :x)", "E-TYPE-001", "(fields :x)"),
        ("(fields :x f32 y f32)", "E-NAME-001", "y"),
        ('(fields :x f32 "y" f32)', "E-TYPE-001", '"y"'),
        ("(fields :x (list 16))", "E-TYPE-001", "(list 16)"),
        ("(fields :x (list))", "E-TYPE-001", "(list)"),
        ("(fields :x (list f32 -1))", "E-TYPE-001", "(list f32 -1)"),
        ("(fields :x (list f32 1.5))", "E-TYPE-001", "(list f32 1.5)"),
        ("(fields :x f32 :x i32)", "E-NAME-002", ":x"),
    ],
)
def test_what_loaders_refuse(text: str, code: str, under: str) -> None:
    assert place(failure_of(text, code))[2] == under


@pytest.mark.parametrize(
    "text",
    [
        "(fields :x (list f32 1000000 1000000))",
        '(text "v" :window 1000000000000)',
        '(images "f" :size 1000000)',
        '(arrays "v" :fields (list :x (list f32 0 1000000 1000000)))',
    ],
)
def test_a_record_too_large(text: str) -> None:
    error = failure_of(text, "E-SHAPE-003")
    assert "the field `" in error.message
    assert place(error)[2] == text


def test_a_record_of_too_many_axes() -> None:
    sizes = " 1" * 40
    assert "41 axes" in failure_of(f"(fields :x (list f32{sizes}))", "E-SHAPE-003").message


def test_how_a_loader_is_shown() -> None:
    assert value_of('(str (text "v.txt" :window 2))') == "#<loader text v.txt>"
    assert value_of("(str (fields :x f32))") == "#<loader fields>"
