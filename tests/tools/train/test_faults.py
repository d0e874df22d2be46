"""What a disk or the data do to a run: an error in a sentence, and the last good step as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.metrics import read_metrics
from support.commands import command, environment, launched, run_alone
from support.permissions import OBEY_PERMISSIONS, needs_permissions
from support.training import LINE, contents, stop_after, train, write_line

IN = ("run", "line.sx", "--device", "cpu", "--checkpoint-dir", "run")
NET = """
(def hidden (linear width 512))
(def out (linear 512 1))
(defn model (x) (out (hidden x)))
"""
#: The optimizer's state is the largest of its files.
WIDE = LINE.replace("(def model (linear width 1))", NET).replace("{more}", "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the data and `line.sx`, whose run stands at step 5."""
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    train(write(LINE), "run", stop=stop_after(5))
    return tmp_path


def write(text: str, more: str = "") -> Path:
    path = Path("line.sx")
    path.write_text(text.replace("{more}", more))
    return path


def entries(location: str = "run") -> list[str]:
    return sorted(path.name for path in Path(location).iterdir())


def refused(program: Path, **named: object) -> SexpgpuError:
    """The error that a run ends with, whose newest step is what it was."""
    before = contents(Path("run"))
    with pytest.raises(SexpgpuError) as caught:
        train(program, "run", **named)  # type: ignore[arg-type]
    assert before.items() <= contents(Path("run")).items()
    open_checkpoint("run").verify()
    assert not [name for name in entries() if name.startswith(".")]
    return caught.value


def goes_on(text: str = LINE, steps: int = 20) -> None:
    """Without what stood in its way the run comes to the end of one that was left alone."""
    train(write(text), "run", steps=steps)
    train(write(text), "whole", steps=steps)
    last = f"step-{steps:08}/"
    run, whole = (
        {name: b for name, b in contents(Path(place)).items() if name.startswith(last)}
        for place in ("run", "whole")
    )
    assert run == whole
    told = [record.step for record in read_metrics("run") if record.kind == "train"]
    assert told == list(range(1, steps + 1))


# The disk


def limited(size: int) -> str:
    """Files may not become larger, as if the disk were full."""
    return f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size})); "


def test_no_room_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    train(write(WIDE), "run", stop=stop_after(5))
    done = run_alone(tmp_path, *IN, before=limited(15_000))
    assert (done.returncode, done.stdout) == (1, "")
    assert "error[E-LOC-002]: the location cannot be written\n" in done.stderr
    assert " = came: File too large\n" in done.stderr
    assert entries() == ["metrics.jsonl", "step-00000005"]
    open_checkpoint("run").verify()
    goes_on(WIDE)


def test_no_room_for_the_log(folder: Path) -> None:
    done = run_alone(folder, *IN, "--steps", "200", before=limited(12_000))
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        "error[E-FILE-001]: the log of the run's metrics cannot be written: File too large\n"
        in done.stderr
    )
    newest = open_checkpoint("run")
    newest.verify()
    assert 5 < newest.document.step < 200
    assert Path("run/metrics.jsonl").read_bytes().endswith(b"}\n")
    goes_on(steps=200)


def obeying(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process that files' permissions bind."""
    return subprocess.run(
        launched(command(*arguments), OBEY_PERMISSIONS),
        env=environment(),
        capture_output=True,
        text=True,
    )


@needs_permissions
@pytest.mark.parametrize(
    ("place", "mode", "location", "error"),
    [
        ("run", 0o555, "run", "E-LOC-002]: the location cannot be written"),
        ("run/metrics.jsonl", 0o444, "run", "E-FILE-001]: the log of the run's metrics cannot"),
        ("run", 0o555, "run/other", "E-LOC-002]: the location cannot be written"),
        ("run", 0o333, "run", "E-LOC-002]: the location cannot be read"),
    ],
    ids=["directory", "log", "above", "unreadable"],
)
def test_a_location_that_may_not_be_used(
    place: str, mode: int, location: str, error: str, folder: Path
) -> None:
    before, kept = contents(folder / "run"), os.stat(place).st_mode
    os.chmod(place, mode)
    try:
        done = obeying(*IN[:-1], location)
    finally:
        os.chmod(place, kept)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error[{error}" in done.stderr
    assert "Permission denied" in done.stderr or "may only read" in done.stderr
    assert "\nstep " not in done.stderr
    assert contents(folder / "run") == before
    assert entries() == ["metrics.jsonl", "step-00000005"]


def test_a_location_that_is_no_directory(folder: Path) -> None:
    with pytest.raises(SexpgpuError) as caught:
        train(Path("line.sx"), "line.npz")
    assert caught.value.code == "E-LOC-002"
    with pytest.raises(SexpgpuError) as caught:
        train(Path("line.sx"), "line.npz/run")
    assert caught.value.code == "E-LOC-002"


def test_a_log_that_is_none(folder: Path) -> None:
    lines = Path("run/metrics.jsonl").read_text()
    Path("run/metrics.jsonl").write_text("a table\n")
    assert refused(Path("line.sx")).code == "E-JSON-001"
    Path("run/metrics.jsonl").unlink()
    Path("run/metrics.jsonl").mkdir()
    assert refused(Path("line.sx")).code in ("E-FILE-001", "E-LOC-002")
    Path("run/metrics.jsonl").rmdir()
    Path("run/metrics.jsonl").write_text(lines)
    goes_on()


def test_a_newest_step_that_is_damaged_is_not_gone_on_from(folder: Path) -> None:
    for name in ("params.safetensors", "optimizer.safetensors", "ema.safetensors"):
        path = Path("run/step-00000005") / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-8])
        with pytest.raises(SexpgpuError) as caught:
            train(Path("line.sx"), "run")
        assert caught.value.code in ("E-CKPT-003", "E-CKPT-004", "E-TENSORS-001"), name
        path.unlink()
        with pytest.raises(SexpgpuError) as caught:
            train(Path("line.sx"), "run")
        assert caught.value.code.startswith("E-CKPT"), name
        path.write_bytes(whole)
    goes_on()


# The data


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def with_nan(path: Path) -> None:
    found = dict(np.load(path))
    found["x"][40, 1] = np.nan
    np.savez(path, **found)


@pytest.mark.parametrize("declared", ["", " :fields (list :x (list f32 3) :y f32)"])
@pytest.mark.parametrize(
    ("damage", "codes"),
    [
        (Path.unlink, ("E-DATA-001", "E-DATA-002")),
        (cut, ("E-DATA-001", "E-DATA-003")),
        (lambda path: os.truncate(path, 0), ("E-DATA-001", "E-DATA-007")),
        (with_nan, ("E-DATA-006", "E-DATA-006")),
    ],
    ids=["missing", "truncated", "empty", "nan"],
)
def test_data_that_is_no_more_what_it_was(
    damage: Callable[[Path], None],
    codes: tuple[str, str],
    declared: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    program = write(LINE.replace('"line.npz"', f'"line.npz"{declared}'))
    train(program, "run", stop=stop_after(5))
    damage(Path("line.npz"))
    error = refused(program)
    assert error.code == codes[bool(declared)]
    assert "line.npz" in error.render()


def overwritten(path: Path) -> None:
    """Every number of x becomes NaN, in the file that the run has mapped."""
    x = np.load("line.npz")["x"].tobytes()
    place = path.read_bytes().index(x)
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(np.full(len(x) // 4, np.nan, np.float32).tobytes())


@pytest.mark.parametrize(
    ("damage", "code"), [(cut, "E-DATA-003"), (overwritten, "E-DATA-006")], ids=["cut", "nan"]
)
def test_data_that_changes_while_the_run_goes_on(
    damage: Callable[[Path], None], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    save_file(dict(np.load("line.npz")), "line.safetensors")
    shutil.copy("line.safetensors", "kept.safetensors")
    text = LINE.replace("line.npz", "line.safetensors")
    train(write(text), "run", stop=stop_after(5))
    taken = 0

    def stop() -> bool:
        nonlocal taken
        taken += 1
        if taken == 6:
            damage(Path("line.safetensors"))
        return False

    error = refused(Path("line.sx"), stop=stop)
    assert error.code == code
    assert error.place == "line.safetensors"
    assert open_checkpoint("run").document.step == 10
    shutil.copy("kept.safetensors", "line.safetensors")
    goes_on(text)


def test_text_that_is_cut_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("abcdefgh" * 4000)
    program = write("""
(def train (text "text.txt" :window 9 :symbols 128))
(defn prepare (r) (let (t (get r :tokens))
  (list :inputs (slice t :axis 1 :to 8) :targets (slice t :axis 1 :from 1))))
(defmodel net () (parts e (embedding 128 8) head (linear 8 128)) (apply (t) (head (e t))))
(def model (net))
(defn loss (p prepared) (mean (cross-entropy p (get prepared :targets))))
(defrun :train train :steps 20 :batch 4 :optimizer (sgd :lr 0.1) :checkpoint-every 5)
""")
    taken = 0

    def stop() -> bool:
        nonlocal taken
        taken += 1
        if taken == 6:
            cut(Path("text.txt"))
        return False

    train(program, "run", stop=stop_after(5))
    error = refused(program, stop=stop)
    assert error.code == "E-DATA-003"
    assert open_checkpoint("run").document.step == 10


def test_a_tmpfs_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk of 64 KiB, where this user may make one."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = (
        sys.platform == "linux"
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("nothing may be mounted here")
    monkeypatch.chdir(tmp_path)
    try:
        write_line(tmp_path)
        write(WIDE)
        (small / "filling").write_bytes(bytes(20 << 10))
        done = run_alone(tmp_path, *IN[:-1], "small/run")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "E-INTERNAL" not in done.stderr
        assert not list(small.glob("run/.step-*"))
    finally:
        subprocess.run(["umount", str(small)], check=True)
