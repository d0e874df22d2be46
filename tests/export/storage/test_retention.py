"""Old steps go whole, and leftovers of killed writers go with them."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from sexpgpu.export.storage.checkpoint import list_steps, open_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.export.storage.retention import remove_leftovers, remove_step
from sexpgpu.schemas.errors import SexpgpuError
from support.checkpoints import save


@pytest.fixture(params=["local", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    text = str(tmp_path / "run") if request.param == "local" else f"memory://{uuid.uuid4()}/run"
    for step in (10, 20, 30):
        save(text, step)
    return Location.parse(text)


def test_a_removed_step_is_gone_and_the_others_stay(location: Location) -> None:
    remove_step(location / "step-00000020")
    assert [step.name for step in list_steps(location)] == ["step-00000030", "step-00000010"]
    assert location.names() == ["step-00000010", "step-00000030"]
    for step in list_steps(location):
        open_checkpoint(step).verify()


def test_what_is_not_there_is_removed_already(location: Location) -> None:
    remove_step(location / "step-00000040")
    assert len(list_steps(location)) == 3


def test_leftovers_of_killed_writers_go(tmp_path: Path) -> None:
    save(str(tmp_path), 10)
    for name in (".step-00000020.0123abcd", ".step-00000010.removed", ".mine", "step-00000020"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "params.safetensors").write_bytes(b"half")
    remove_leftovers(Location.parse(str(tmp_path)))
    assert sorted(os.listdir(tmp_path)) == [".mine", "step-00000010", "step-00000020"]
    remove_leftovers(Location.parse(str(tmp_path / "nowhere")))


def test_a_storage_that_refuses_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(str(tmp_path), 10)

    def refuse(*paths: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(SexpgpuError) as caught:
        remove_step(Location.parse(str(tmp_path)) / "step-00000010")
    assert caught.value.code == "E-LOC-002"
    assert caught.value.came == "Permission denied"
