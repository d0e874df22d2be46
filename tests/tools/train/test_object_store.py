"""Runs into an object store: what stands there, and what stands when it fails halfway."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.evaluate import evaluate_checkpoint
from sexpgpu.tools.train.metrics import read_metrics
from sexpgpu.tools.train.run import TrainingRun
from support.commands import command, environment
from support.object_store import ObjectStore, object_store
from support.training import LINE, contents, stop_after, train, write_line

pytest.importorskip("s3fs")

RUN = "s3://bucket/team/run"
KEY = "bucket/team/run/"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The tensors of every step of a run on a disk."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_line(folder)
        train(write(), "here")
    return contents(folder / "here")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An object store, and a directory with the data and `line.sx`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    write_line(tmp_path)
    write()
    with object_store(monkeypatch) as store:
        yield store


def write(more: str = "") -> Path:
    path = Path("line.sx")
    path.write_text(LINE.replace("{more}", more))
    return path


def tensors(store: ObjectStore) -> dict[str, bytes]:
    """The tensors of every step, by their names."""
    return {n: store.objects[KEY + n] for n in store.names(KEY) if n.endswith(".safetensors")}


def test_a_run_into_it_leaves_what_one_on_a_disk_leaves(
    store: ObjectStore, whole: dict[str, bytes]
) -> None:
    outcome, _ = train(write(":keep 2"), RUN)
    assert outcome.place == f"{RUN}/step-00000020"
    kept = ("step-00000015/", "step-00000020/")
    assert tensors(store) == {name: b for name, b in whole.items() if name.startswith(kept)}
    others = [name for name in store.names(KEY) if not name.endswith(".safetensors")]
    assert others == [
        "metrics.jsonl",
        *(step + name for step in kept for name in ("checkpoint.json", "model.json")),
    ]
    open_checkpoint(RUN).verify()
    assert [record.step for record in read_metrics(RUN) if record.kind == "train"] == [
        *range(1, 21)
    ]
    there = evaluate_checkpoint(Path("line.sx"), RUN, trained=False, precisions=[])
    assert there.metrics["f32"] == outcome.evaluation


def test_a_run_goes_on_from_it_to_the_same_bits(
    store: ObjectStore, whole: dict[str, bytes]
) -> None:
    train(write(), RUN, stop=stop_after(7))
    outcome, shown = train(write(), RUN)
    assert "going on after step 7" in shown
    assert outcome.step == 20
    found = tensors(store)
    assert whole.items() <= found.items()
    assert {name.partition("/")[0] for name in found.keys() - whole.keys()} == {"step-00000007"}
    assert [record.step for record in read_metrics(RUN) if record.kind == "train"] == [
        *range(1, 21)
    ]


@pytest.mark.parametrize(
    ("status", "name"),
    [(403, "params.safetensors"), (0, "model.json"), (403, "checkpoint.json")],
    ids=["refused at once", "hung up", "refused at last"],
)
def test_what_fails_in_the_middle_leaves_the_last_good_step(
    status: int, name: str, store: ObjectStore, whole: dict[str, bytes]
) -> None:
    store.trouble = lambda method, key: (
        status if method == "PUT" and key.endswith(f"step-00000010/{name}") else None
    )
    with pytest.raises(SexpgpuError) as caught:
        train(write(), RUN)
    assert caught.value.code == "E-LOC-002"
    assert caught.value.place == f"{RUN}/step-00000010/{name}"
    store.trouble = lambda method, key: None
    newest = open_checkpoint(RUN)
    assert newest.document.step == 5
    newest.verify()
    train(write(), RUN)
    assert tensors(store) == whole


def test_killed_in_the_middle_a_run_goes_on_to_the_same_bits(
    store: ObjectStore, whole: dict[str, bytes]
) -> None:
    """The store kills whoever writes to it, once, and never has the object."""
    arguments = ["run", "line.sx", "--checkpoint-dir", RUN, "--device", "cpu"]
    killed: list[str] = []

    def kill(method: str, key: str) -> int | None:
        if method != "PUT" or not key.endswith("step-00000010/optimizer.safetensors"):
            return None
        process.kill()
        killed.append(key)
        return 0

    store.trouble = kill
    with subprocess.Popen(
        command(*arguments), env=environment(), stderr=subprocess.DEVNULL
    ) as process:
        process.wait()
    store.trouble = lambda method, key: None
    assert (process.returncode, len(killed)) == (-signal.SIGKILL, 1)
    assert open_checkpoint(RUN).document.step == 5
    assert "step-00000010/params.safetensors" in store.names(KEY)
    train(write(), RUN)
    assert tensors(store) == whole
    told = [record.step for record in read_metrics(RUN) if record.kind == "train"]
    assert told == list(range(1, 21))


def test_fresh_replaces_what_was_there(store: ObjectStore, whole: dict[str, bytes]) -> None:
    train(write(":seed 1"), RUN, stop=stop_after(7))
    train(write(), RUN, "fresh")
    assert tensors(store) == whole


def test_a_log_that_cannot_be_written_costs_no_checkpoint(store: ObjectStore) -> None:
    train(write(), RUN, stop=stop_after(5))
    store.trouble = lambda method, key: 403 if method == "PUT" and "metrics" in key else None
    with pytest.raises(SexpgpuError) as caught:
        train(write(), RUN)
    assert caught.value.code == "E-LOC-002"
    assert caught.value.place == f"{RUN}/metrics.jsonl"
    assert open_checkpoint(RUN).document.step == 5


def test_an_old_step_that_cannot_be_removed_costs_no_new_one(store: ObjectStore) -> None:
    store.trouble = lambda method, key: 403 if method in ("DELETE", "POST") else None
    with pytest.raises(SexpgpuError) as caught:
        train(write(":keep 1"), RUN)
    assert caught.value.code == "E-LOC-002"
    assert caught.value.message == "an old checkpoint cannot be removed"
    store.trouble = lambda method, key: None
    assert open_checkpoint(RUN).document.step == 10
    train(write(":keep 1"), RUN)
    assert {name.partition("/")[0] for name in tensors(store)} == {"step-00000020"}


@pytest.mark.parametrize("methods", [("PUT",), ("GET", "HEAD", "PUT")], ids=["reading", "nothing"])
def test_what_may_not_be_done_is_known_before_the_first_step(
    methods: tuple[str, ...], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainingRun, "_train", None)
    store.trouble = lambda method, key: 403 if method in methods else None
    with pytest.raises(SexpgpuError) as caught:
        train(write(), RUN)
    assert caught.value.code == "E-LOC-002"
    assert store.objects == {}
