"""CSV files: cells as numbers, columns as fields, and every mistake named by its place."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sexpgpu.tools.train.data import files, table
from sexpgpu.tools.train.data.dataset import Dataset
from support.data import data_error, dataset_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table_of(text: str | bytes, options: str) -> Dataset:
    Path("t.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return dataset_of(f'(csv "t.csv" {options})')


def values(text: str | bytes, options: str) -> dict[str, list[object]]:
    data = table_of(text, options)
    return {name: array.tolist() for name, array in data.batch(range(data.count)).items()}


def test_columns_by_name_in_their_dtypes() -> None:
    data = table_of(
        "id,width,label,heavy,far\n1,0.5,3,true,1e300\n2,-1e-3,-4,0,2\n",
        ":fields (list :label i32 :width f32 :heavy bool :far f64 :id bf16)",
    )
    assert (data.count, data.tokens) == (2, None)
    batch = data.batch(np.array([1, 0]))
    assert [(name, array.dtype) for name, array in batch.items()] == [
        ("label", np.int32),
        ("width", np.float32),
        ("heavy", np.bool_),
        ("far", np.float64),
        ("id", ml_dtypes.bfloat16),
    ]
    assert batch["label"].tolist() == [-4, 3]
    assert batch["width"].tolist() == [np.float32(-1e-3), 0.5]
    assert batch["heavy"].tolist() == [False, True]
    assert batch["far"].tolist() == [2, 1e300]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\r\n1,2\r\n3,4",
        "\ufeffa,b\n1,2\n3,4\n",
        '"a","b"\n"1","2"\n"3", "4"\n',
        " a , b\n 1, 2\n\n3 ,4\n\n",
        'a,"note\nover ""two"" lines, with commas",b\n1,x,2\n3,"y\n\nz",4\n',
        "b,a\n2,1\n4.0,3e0\n",
    ],
)
def test_ways_to_write_a_table(text: str) -> None:
    assert values(text, ":fields (list :a i64 :b i32)") == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize(("mark", "written"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
def test_other_separators(mark: str, written: str) -> None:
    text = f"a{mark}b\n1{mark}2\n"
    assert values(text, f':fields (list :b f32) :separator "{written}"') == {"b": [2]}
    error = data_error('(csv "t.csv" :fields (list :b f32))', "E-DATA-004")
    assert error.help == f'another separator? `:separator "{written}"`'


@pytest.mark.parametrize("mark", [".", "", "_"])
def test_a_field_of_several_columns(mark: str) -> None:
    header = ",".join(f"x{mark}{n}" for n in (3, 1, 0, 2))
    text = f"{header},y\n13,11,10,12,1\n23,21,20,22,2\n"
    assert values(text, ":fields (list :x (list f32 2 2) :y i32)") == {
        "x": [[[10, 11], [12, 13]], [[20, 21], [22, 23]]],
        "y": [1, 2],
    }


def test_a_field_of_more_columns_than_there_are() -> None:
    Path("t.csv").write_text("x.0,x.1\n1,2\n")
    error = data_error('(csv "t.csv" :fields (list :x (list f32 3)))', "E-DATA-004")
    assert error.expected == "3 columns, `x.0` to `x.2`"
    data_error('(csv "t.csv" :fields (list :x (list f32 100000 100000)))', "E-DATA-004")
    Path("t.csv").write_text("x.0,x.2\n1,2\n")
    error = data_error('(csv "t.csv" :fields (list :x (list f32 2)))', "E-DATA-004")
    assert error.expected == "a column `x.1`"


def test_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_ROWS", 7)
    text = "n,s\n" + "".join(f"{n},{n / 4}\n" for n in range(100))
    found = values(text, ":fields (list :n i32 :s f32) :split (list 0.1 0.9)")
    assert found == {"n": list(range(10, 90)), "s": [n / 4 for n in range(10, 90)]}


@pytest.mark.parametrize(
    ("cell", "dtype", "said"),
    [
        ("x1", "f32", "labels are whole numbers from 0: write 0 for 'x1'"),
        ("", "f32", "leave the row out"),
        (" ", "bool", "leave the row out"),
        ("1_000", "f32", "thousands have no mark"),
        ("١", "i32", "thousands have no mark"),
        ("1.5", "i32", "declare the field as f32"),
        ("3000000000", "i32", "declare the field as i64"),
        ("1" * 30, "i64", "declare the field as f32"),
        ("1" * 50, "i64", "declare the field as f64"),
        ("1" * 5000, "i64", "thousands have no mark"),
        ("1e999", "f32", "declare the field as f64"),
        ("1e39", "f32", "declare the field as f64"),
        ("2", "bool", "as i32"),
        ("0x10", "i32", "thousands have no mark"),
    ],
)
def test_a_cell_that_is_no_value(cell: str, dtype: str, said: str) -> None:
    Path("t.csv").write_text(f"a,b\n1,1\n\n0,{cell}\n", "utf-8")
    error = data_error(f'(csv "t.csv" :fields (list :b {dtype}))', "E-DATA-005")
    assert error.place == "t.csv:4, column `b`"
    assert error.help is not None
    assert said in error.help


def test_labels_that_are_words() -> None:
    Path("t.csv").write_text("kind\n3\nsetosa\nvirginica\nsetosa\n")
    error = data_error('(csv "t.csv" :fields (list :kind i32))', "E-DATA-005")
    assert error.came == "'setosa'"
    assert error.help == "labels are whole numbers from 0: write 0 for 'setosa', 1 for 'virginica'"


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity"])
def test_a_number_that_is_not_finite(cell: str) -> None:
    Path("t.csv").write_text(f"a\n1\n2\n{cell}\n")
    error = data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-006")
    assert error.place == "t.csv:4, column `a`"
    data_error('(csv "t.csv" :fields (list :a f32) :split (list 0 0.5))', "E-DATA-006")


def test_a_column_that_is_missing() -> None:
    Path("t.csv").write_text("width,height\n1,2\n")
    error = data_error('(csv "t.csv" :fields (list :widht f32))', "E-DATA-004")
    assert (error.place, error.came, error.help) == (
        "t.csv:1",
        "width, height",
        "did you mean `width`?",
    )
    Path("t.csv").write_text("1.5,2\n1,2\n")
    error = data_error('(csv "t.csv" :fields (list :width f32))', "E-DATA-004")
    assert error.help == "the first line names the columns: write one before the numbers"
    Path("t.csv").write_text("a,a\n1,2\n")
    error = data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-004")
    assert error.message == "two columns are called `a`"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"a,b\n1,2\n1\n", "t.csv:3"),
        (b"a,b\n1,2,3\n", "t.csv:2"),
        (b'a,b\n1,2\n1,"x\n1,2\n', "t.csv:3"),
        (b'a,b\n1,"2"x\n', "t.csv:2"),
        (b"a,b\n1,2\xff\n", "t.csv"),
        (b"a,b\n1," + b"x" * 200_000 + b"\n", "t.csv:2"),
    ],
)
def test_a_table_that_is_malformed(text: bytes, place: str) -> None:
    Path("t.csv").write_bytes(text)
    error = data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-003")
    assert error.place == place


def test_a_file_of_one_endless_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_LINE_LIMIT", 1000)
    Path("t.csv").write_bytes(b"a" * 10_000)
    assert "is no table" in data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-003").message


def test_tables_without_a_row() -> None:
    Path("t.csv").write_text("a,b\n")
    error = data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-007")
    assert error.message == "there are no records"
    Path("t.csv").write_text("")
    data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-007")
    Path("t.csv").write_text("\n\n")
    data_error('(csv "t.csv" :fields (list :a f32))', "E-DATA-004")
    data_error('(csv "none.csv" :fields (list :a f32))', "E-DATA-002")


def test_a_table_that_memory_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "sysconf", lambda name: 8)
    monkeypatch.setattr(table, "_ROWS", 4)
    Path("t.csv").write_text("a\n" + "1\n" * 40)
    data_error('(csv "t.csv" :fields (list :a f64))', "E-DATA-011")
    assert dataset_of('(csv "t.csv" :fields (list :a bool))').count == 40


def test_fingerprints_are_of_the_content() -> None:
    one = table_of("a\n1\n", ":fields (list :a f32)").fingerprint()
    assert table_of("a\n1\n", ":fields (list :a i32)").fingerprint() == one
    assert table_of("a\n2\n", ":fields (list :a f32)").fingerprint() != one
