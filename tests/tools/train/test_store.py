"""The checkpoints of a run: which are gone on from, which are not, and what is removed when."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.cli import main
from sexpgpu.tools.train import store as module
from sexpgpu.tools.train.plan import make_plan
from sexpgpu.tools.train.store import RunStore
from support.training import LINE, contents, stop_after, train, write_line


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with `line.sx` and its data."""
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    write()
    return tmp_path


def write(text: str = LINE, more: str = "") -> Path:
    path = Path("line.sx")
    path.write_text(text.replace("{more}", more))
    return path


def open_store(place: str = "run") -> RunStore:
    return RunStore(
        make_plan(Path("line.sx"), None, None, None).program, Location.parse(place), None, "data"
    )


def entries(location: str = "run") -> list[str]:
    return sorted(path.name for path in Path(location).iterdir())


def error_of(mode: str = "auto") -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        train(Path("line.sx"), "run", mode)  # type: ignore[arg-type]
    return caught.value


def test_one_writer_at_a_time() -> None:
    first = open_store()
    with pytest.raises(SexpgpuError) as caught:
        open_store()
    assert caught.value.code == "E-RUN-004"
    open_store("other").close()
    first.close()
    first.close()
    open_store().close()


def test_what_killed_writers_left_goes() -> None:
    train(Path("line.sx"), "run", stop=stop_after(5))
    for name in (".step-00000010.0a1b2c3d", ".step-00000001.removed"):
        (Path("run") / name / "deeper").mkdir(parents=True)
    Path("run/notes").write_text("mine")
    Path("run/.hidden").write_text("mine")
    open_store().close()
    assert entries() == [".hidden", "metrics.jsonl", "notes", "step-00000005"]


def test_another_runs_leftovers_stay_while_it_writes() -> None:
    first = open_store()
    Path("run/.step-00000010.0a1b2c3d").mkdir()
    with pytest.raises(SexpgpuError):
        open_store()
    assert entries() == [".step-00000010.0a1b2c3d"]
    first.close()


def test_initial_weights_are_no_run_to_go_on_with() -> None:
    """What `sexpgpu init` writes has no optimizer's state."""
    with pytest.raises(SystemExit) as ended:
        main(["init", "line.sx", "--checkpoint-dir", "run"])
    assert ended.value.code == 0
    error = error_of()
    assert error.code == "E-RUN-002"
    assert "it has no optimizer.safetensors" in error.message
    assert error.help is not None
    assert "--fresh" in error.help
    assert entries()[-1] == "step-00000000"
    train(Path("line.sx"), "run", "fresh", stop=stop_after(2))
    assert entries() == ["metrics.jsonl", "step-00000002"]


def test_another_optimizer_is_another_run() -> None:
    train(Path("line.sx"), "run", stop=stop_after(2))
    write(LINE.replace("(adam :lr 0.1)", "(sgd :lr 0.1)"))
    assert error_of().code == "E-RUN-003"


def test_many_differences_are_counted() -> None:
    knobs = "".join(f"(defknob k{number} {{value}})\n" for number in range(12))
    write(knobs.replace("{value}", "1") + LINE)
    train(Path("line.sx"), "run", stop=stop_after(2))
    write(knobs.replace("{value}", "2") + LINE)
    notes = error_of().notes
    assert notes[0] == "knob k0: 1 before, 2 now"
    assert len(notes) == 9
    assert notes[-1].startswith("… ")
    assert notes[-1].endswith(" more")


@pytest.mark.parametrize("broken", ["os.rename", "remove_step"])
def test_fresh_keeps_the_old_steps_until_the_first_new_one_is_whole(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Path("line.sx"), "run", stop=stop_after(10))
    before = contents(Path("run"))
    write(LINE.replace(":lr 0.1", ":lr 0.2"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_checkpoint", _full)
        assert error_of("fresh").code == "E-FILE-001"
    assert contents(Path("run")) == before
    with monkeypatch.context() as patch:
        if broken == "remove_step":
            patch.setattr(module, "remove_step", _full)
        else:
            patch.setattr(module.os, "rename", _refused)
        with pytest.raises((SexpgpuError, OSError)):
            train(Path("line.sx"), "run", "fresh")
    # The one of that name is there whole, the old one or the new.
    for step in Path("run").glob("step-*"):
        open_checkpoint(str(step)).verify()
    train(Path("line.sx"), "run", "fresh")
    train(Path("line.sx"), "whole")
    assert contents(Path("run")) == contents(Path("whole"))
    assert not [name for name in entries() if name.startswith(".")]


def _full(*given: object, **named: object) -> None:
    raise SexpgpuError("E-FILE-001", "there is no room")


def _refused(*given: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_file_system_without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(module.fcntl, "flock", none)
    stores = open_store(), open_store()
    for store in stores:
        store.close()


def test_keep_counts_the_newest() -> None:
    write(more=":keep 1")
    train(Path("line.sx"), "run", stop=stop_after(12))
    assert entries() == ["metrics.jsonl", "step-00000012"]
    train(Path("line.sx"), "run", stop=stop_after(4))
    assert entries() == ["metrics.jsonl", "step-00000016"]
