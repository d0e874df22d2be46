"""The configuration file: where it is, what it may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.export.storage.configuration import configuration_path, read_configuration
from sexpgpu.schemas.errors import SexpgpuError


def refusal(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        read_configuration(path)
    assert caught.value.code == "E-CONFIG-001"
    return caught.value


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[aliases]\no41 = "s3://bucket/x"\nDisk = "/data"\n')
    monkeypatch.setenv("SEXPGPU_CONFIG", str(path))
    assert configuration_path() == path
    assert read_configuration().aliases == {"o41": "s3://bucket/x", "disk": "/data"}


def test_by_default_it_is_in_the_users_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEXPGPU_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere/config")
    assert configuration_path().parts[-2:] == ("sexpgpu", "config.toml")
    assert read_configuration().aliases == {}


def test_a_file_that_only_the_environment_names_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_configuration(tmp_path / "none.toml").aliases == {}
    monkeypatch.setenv("SEXPGPU_CONFIG", str(tmp_path / "none.toml"))
    assert "$SEXPGPU_CONFIG" in refusal(tmp_path / "none.toml").message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[aliases]\na = ?", "line 2"),
        ("aliases = 1", "not a table"),
        ("[aliases]\na = 1", "not a table"),
        ("[alises]\n", "`alises`"),
        ('[aliases]\ns3 = "file:///x"', "`s3://` has a meaning"),
        ('[aliases]\na = "relative/path"', "neither a URL"),
        ("a = " + "[" * 5000, "not TOML"),
        ("#" * (1 << 20) + "#", "more than"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    error = refusal(path)
    assert words in error.message
    assert error.place == str(path)


def test_a_misspelt_table_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[alias]\n")
    assert refusal(tmp_path / "c.toml").help == "did you mean `aliases`?"


def test_what_is_no_text_or_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xff")
    assert "not TOML" in refusal(tmp_path / "c.toml").message
    assert "cannot be read" in refusal(tmp_path).message
