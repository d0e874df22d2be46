"""Locations: paths, URLs and aliases, and what is said where they lead nowhere."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from support.web import web_server


def refusal(text: str) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        Location.parse(text).read(10)
    return caught.value


@pytest.fixture
def aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(
        '[aliases]\no41 = "memory://bucket/team"\ndisk = "/data"\nfar = "nowhere://x"\n'
    )
    monkeypatch.setenv("SEXPGPU_CONFIG", str(path))
    return path


def test_a_path_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_bytes(b"12345")
    for text in ("run", "./run/", str(tmp_path / "run"), f"file://{tmp_path}/run"):
        location = Location.parse(text)
        assert location.is_local
        assert not location.is_http
        assert location.path == str(tmp_path / "run")
        assert location.url == f"file://{tmp_path}/run"
        assert str(location) == text
        assert location.name == "run"
        assert location.names() == ["a"]
        assert (location / "a").read(100) == b"12345"
        assert (location / "a").read(3) == b"1234"
        assert (location / "a").exists()
        assert not (location / "b").exists()


def test_memory_is_written_and_read() -> None:
    location = Location.parse("memory://location-test/run")
    with (location / "a").writing() as file:
        file.write(b"1")
    location.make_directory()
    assert location.names() == ["a"]
    assert (location / "a").read(1) == b"1"
    with pytest.raises(FileNotFoundError):
        (location / "none").read(1)
    with pytest.raises(FileNotFoundError):
        Location.parse("memory://location-test/none").names()


def test_an_alias_stands_for_its_url(aliases: Path) -> None:
    location = Location.parse("o41://my-team/run")
    assert location.text == "o41://my-team/run"
    assert location.url == "memory:///bucket/team/my-team/run"
    assert str(location / "step-1") == "o41://my-team/run/step-1"
    assert Location.parse("O41://").path == "/bucket/team"
    assert Location.parse("disk://run").path == "/data/run"


def test_an_unknown_scheme_says_where_aliases_are_written(aliases: Path) -> None:
    error = refusal("o42://my-team/run")
    assert error.code == "E-LOC-001"
    assert "`o42://`" in error.message
    assert "o41" in str(error.help)
    assert str(aliases) in error.notes[0]
    assert refusal("memry://x").help == "did you mean `memory`?"
    assert "nowhere" in refusal("far://x").message


def test_a_malformed_configuration_is_named_when_an_alias_is_looked_for(aliases: Path) -> None:
    aliases.write_text("[")
    assert refusal("o41://x").code == "E-CONFIG-001"
    assert Location.parse("memory://x").path == "/x"


@pytest.mark.parametrize(
    ("text", "package", "extra"),
    [("http://x/y", "aiohttp", "http"), ("s3://x/y", "s3fs", "s3")],
)
def test_a_missing_package_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, text: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys.modules["fsspec.registry"], "_registry", {})
    error = refusal(text)
    assert error.code == "E-LOC-002"
    assert error.help == f"pip install 'sexpgpu[{extra}]'"


def test_what_cannot_be_read_is_not_called_absent(tmp_path: Path) -> None:
    error = refusal(str(tmp_path))
    assert error.code == "E-LOC-002"
    assert error.came == "Is a directory"


def test_the_fault_of_a_reader_is_not_the_storages(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(KeyError), Location.parse(str(tmp_path / "a")).reading():
        raise KeyError("mine")


def test_a_web_server_is_read_and_listed(tmp_path: Path) -> None:
    (tmp_path / "run" / "step-1").mkdir(parents=True)
    (tmp_path / "run" / "a").write_bytes(bytes(100_000))
    with web_server(tmp_path) as (url, _):
        location = Location.parse(f"{url}/run")
        assert location.is_http
        assert location.names() == ["a", "step-1"]
        assert (location / "a").read(1 << 20) == bytes(100_000)
        assert len((location / "a").read(10)) == 11
        assert not (location / "b").exists()
        with pytest.raises(FileNotFoundError):
            (location / "b").read(1)


def test_a_web_server_may_list_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with web_server(tmp_path, listing=False) as (url, _):
        assert Location.parse(url).names() == []


def test_a_server_that_is_not_there_is_said_so() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        assert refusal(f"http://127.0.0.1:{port}/run").code == "E-LOC-002"


def test_an_empty_location_is_not_the_current_directory() -> None:
    with pytest.raises(SexpgpuError) as caught:
        Location.parse("")
    assert caught.value.code == "E-LOC-001"
    assert caught.value.message == "the location is empty"
