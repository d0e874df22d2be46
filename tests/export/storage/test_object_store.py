"""Checkpoints in an object store: written, listed, inspected, exported from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.storage.checkpoint import list_steps, open_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from support.commands import Run, runner
from support.object_store import ObjectStore, object_store
from support.programs import GPT

LOCATION = "s3://bucket/team/a run"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store, and a directory with `gpt.sx`; `team://` is an alias of a place in the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    configuration = tmp_path / "configuration/sexpgpu/config.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text('[aliases]\nteam = "s3://bucket/team"\n')
    Path("gpt.sx").write_text(GPT)
    with object_store(monkeypatch) as store:
        yield store


@pytest.fixture
def cli(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands there, where the store has a checkpoint of the first step."""
    run = runner(capsys)
    status, _, err = run("init", "gpt.sx", "--checkpoint-dir", LOCATION)
    if status:
        pytest.fail(err)
    return run


def test_a_checkpoint_is_what_it_is_on_a_disk(cli: Run, store: ObjectStore) -> None:
    cli("init", "gpt.sx", "--checkpoint-dir", "here")
    names = ["checkpoint.json", "model.json", "params.safetensors"]
    assert store.names("bucket/team/a run/") == [f"step-00000000/{name}" for name in names]
    here = Path("here/step-00000000/params.safetensors").read_bytes()
    assert store.objects["bucket/team/a run/step-00000000/params.safetensors"] == here
    # What says that the step is whole was written last.
    assert [key for method, key in store.requests if method == "PUT"][-1].endswith(names[0])


def test_it_is_found_listed_and_read(cli: Run, store: ObjectStore) -> None:
    assert [step.name for step in list_steps(Location.parse(LOCATION))] == ["step-00000000"]
    for place in (LOCATION, f"{LOCATION}/step-00000000", "team://a run"):
        checkpoint = open_checkpoint(place)
        checkpoint.verify()
        weights = checkpoint.weights(trained=True)
        assert np.isfinite(weights.array("tok")).all()


def test_inspect_and_export(cli: Run) -> None:
    status, out, _ = cli("inspect", LOCATION, "--json")
    assert status == 0
    assert json.loads(out)["facts"]["step"] == 0
    status, _, err = cli("export", "--checkpoint", "team://a run", "-o", "out")
    assert status == 0, err
    assert Path("out/model.onnx").exists()


def test_a_step_is_not_overwritten(cli: Run, store: ObjectStore) -> None:
    before = dict(store.objects)
    status, _, err = cli("init", "gpt.sx", "--checkpoint-dir", LOCATION)
    assert (status, err.split("]")[0]) == (1, "error[E-FILE-001")
    assert store.objects == before


@pytest.mark.parametrize(
    ("name", "code"),
    [("params.safetensors", "E-CKPT"), ("checkpoint.json", "E-CKPT-001")],
)
def test_what_is_missing_there(name: str, code: str, cli: Run, store: ObjectStore) -> None:
    del store.objects[f"bucket/team/a run/step-00000000/{name}"]
    status, _, err = cli("export", "--checkpoint", LOCATION, "-o", "out")
    assert status == 1
    assert err.startswith(f"error[{code}")


def test_a_store_that_refuses_says_so(cli: Run, store: ObjectStore) -> None:
    store.trouble = lambda method, key: 403
    with pytest.raises(SexpgpuError) as caught:
        open_checkpoint(LOCATION)
    assert caught.value.code == "E-LOC-002"
    assert caught.value.came
