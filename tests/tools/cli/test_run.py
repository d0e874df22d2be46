"""`sexpgpu run`: its messages, its flags, and how it ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.tools.train.metrics import read_metrics
from support.commands import Run, command, environment, run_alone, runner
from support.training import LINE, contents, write_line

TEXT = LINE.replace("{more}", "") + "(defvariant seeded :seed 7)\n(defknob seed 0)\n"
MODEL = "(def model (linear width 1))"
IN = ("run", "line.sx", "--device", "cpu", "--checkpoint-dir")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with `line.sx` and its data."""
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)
    Path("line.sx").write_text(TEXT)
    return tmp_path


@pytest.fixture
def cli(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs commands there."""
    return runner(capsys)


def steps(location: str) -> list[str]:
    return sorted(path.name for path in Path(location).glob("step-*"))


# What it says


def test_progress_is_on_stderr_and_the_outcome_on_stdout(cli: Run) -> None:
    status, out, err = cli(*IN, "run")
    assert status == 0
    assert re.fullmatch(
        r"checkpoint run/step-00000020\n"
        r"  metrics    loss [0-9.]+ .*worst [0-9.]+.*\n"
        r"  evaluation loss [0-9.]+ .*worst [0-9.]+\n",
        out,
    )
    assert err.startswith("training line on cpu\n")
    assert "saved step 20: run/step-00000020" in err
    assert "note:" not in err


def test_json(cli: Run) -> None:
    status, out, _ = cli(*IN, "run", "--json")
    data = json.loads(out)
    assert status == 0
    assert list(data) == ["checkpoint", "step", "metrics", "evaluation"]
    assert (data["checkpoint"], data["step"]) == ("run/step-00000020", 20)
    assert data["metrics"].keys() == {"loss", "worst", "learning_rate"}
    assert data["evaluation"].keys() == {"loss", "worst"}
    logged = read_metrics("run")
    assert [r.values for r in logged if r.kind == "evaluation"][-1] == data["evaluation"]
    train = [r.values for r in logged if r.kind == "train"][-1]
    assert {name: train[name] for name in data["metrics"]} == data["metrics"]


def test_a_run_that_is_over_says_so(cli: Run) -> None:
    cli(*IN, "run")
    before = contents(Path("run"))
    status, out, err = cli(*IN, "run")
    assert (status, out) == (0, "checkpoint run/step-00000020\n")
    assert "all 20 steps were taken before: run/step-00000020" in err
    assert contents(Path("run")) == before


@pytest.mark.parametrize("location", ["a b/c d", "./here/", "~", "ä/ü"])
def test_locations_are_relative_paths_of_any_name(location: str, cli: Run) -> None:
    status, out, _ = cli(*IN, location, "--steps", 1)
    assert (status, out.split("\n")[0]) == (0, f"checkpoint {location.rstrip('/')}/step-00000001")
    assert open_checkpoint(location).document.step == 1


def test_steps_variant_and_knobs(cli: Run) -> None:
    status, out, _ = cli(*IN, "run", "--steps", 3, "--variant", "seeded", "--knob", "width=3")
    assert (status, out.split("\n")[0]) == (0, "checkpoint run/step-00000003")
    stored = open_checkpoint("run").document
    assert (stored.variant, stored.knobs) == ("seeded", {"width": 3, "seed": 7})
    status, _, err = cli(*IN, "run", "--steps", 3, "--knob", "seed=8")
    assert (status, err.split("\n")[1]) == (1, "error[E-RUN-003]: the location holds another run")
    assert " = note: variant: seeded before, none now\n" in err
    assert " = note: knob seed: 7 before, 8 now\n" in err
    assert "--fresh" in err
    assert steps("run") == ["step-00000003"]
    assert cli(*IN, "run", "--steps", 4, "--knob", "seed=8", "--fresh")[0] == 0
    assert steps("run") == ["step-00000004"]


def test_resume_and_fresh(cli: Run) -> None:
    status, out, err = cli(*IN, "run", "--resume")
    assert (status, out) == (1, "")
    assert "error[E-CKPT-001]: there is no checkpoint at run to go on from" in err
    assert cli(*IN, "run", "--steps", 2, "--fresh")[0] == 0
    status, _, err = cli(*IN, "run", "--steps", 4, "--resume")
    assert status == 0
    assert "going on after step 2" in err
    # A newest step that is damaged is no obstacle to what replaces it.
    Path("run/step-00000004/checkpoint.json").write_text("{")
    assert cli(*IN, "run", "--steps", 1)[0] == 1
    status, _, err = cli(*IN, "run", "--steps", 1, "--fresh")
    assert (status, steps("run")) == (0, ["step-00000001"]), err


def test_plot(cli: Run) -> None:
    status, _, _ = cli(*IN, "run", "--steps", 2, "--plot", "the run.png")
    assert status == 0
    assert Path("the run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("place", ["none/run.png", "."])
def test_where_no_picture_can_be_is_known_at_once(place: str, cli: Run) -> None:
    status, out, err = cli(*IN, "run", "--plot", place)
    assert (status, out) == (1, "")
    assert err.startswith("error[E-FILE-001]: the picture of the metrics cannot be written there")
    assert not Path("run").exists()


def test_no_picture_without_its_package(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = cli(*IN, "run", "--plot", "run.png")
    assert (status, err.split(":")[0]) == (1, "error[E-RUN-008]")
    assert not Path("run").exists()


def test_a_model_that_cannot_run_alone_is_a_note(cli: Run) -> None:
    net = "(def l (linear width 1))\n(defn model (x) (list (l x) l))"
    Path("line.sx").write_text(TEXT.replace(MODEL, net).replace("(squeeze p", "(squeeze (first p)"))
    status, _, err = cli(*IN, "run", "--steps", 1)
    assert status == 0
    assert err.startswith(
        "note: the checkpoints will hold no model, so they run only from the file:\n"
        "error[E-INFER-001]: a model run alone returns tensors, in lists and plists; "
        "`output.1` is a model\n"
    )
    assert not Path("run/step-00000001/model.json").exists()
    assert Path("run/step-00000001/params.safetensors").exists()


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-"])
def test_a_run_that_nobody_sees_goes_on(stream: str, folder: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {stream}', "sh", *command(*IN, "run", "--steps", "6")],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("checkpoint run/step-00000006\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "line.sx"], "missing option '--checkpoint-dir'"),
        ([*IN, "run", "--resume", "--fresh"], "--resume and --fresh are one or the other"),
        ([*IN, "run", "--steps", "0"], "invalid value for '--steps'"),
        ([*IN, "run", "--device", "tpu"], "invalid value for '--device'"),
        ([*IN, "run", "--knob", "width"], "`width` sets no knob"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, cli: Run) -> None:
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error[E-USAGE-001]: {message}")
    assert not Path("run").exists()


def test_json_of_an_error(cli: Run) -> None:
    Path("line.sx").write_text("(def record (fields :x f32))\n(def model (linear 1 1))")
    status, out, err = cli(*IN, "run", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "E-RUN-005")
    assert err.startswith("error[E-RUN-005]: line.sx says nowhere how its model is trained")


# The machine


NO_GPU = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; "


def test_no_gpu(folder: Path) -> None:
    arguments = ["run", "line.sx", "--checkpoint-dir", "run", "--device", "cuda"]
    done = run_alone(folder, *arguments, before=NO_GPU)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error[E-DEVICE-001]: JAX cannot run on CUDA here\n")
    assert "Traceback" not in done.stderr
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["jax", "optax"])
@pytest.mark.parametrize(
    "arguments", [[*IN, "run"], ["evaluate", "line.sx", "--checkpoint", "run"]], ids=["run", "eval"]
)
def test_without_the_packages(arguments: list[str], name: str, folder: Path) -> None:
    done = run_alone(folder, *arguments, before=f"import sys; sys.modules[{name!r}] = None; ")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error[E-RUN-008]: training needs the package `{name}`, which is not installed\n"
        " = help: pip install 'sexpgpu[train]'\n"
    )


# Told to end


#: Sends its own process signals as the n-th step is handed over.
SIGNALLED = """
import os, signal
import sexpgpu.tools.train.run as run
left = [{count}]
real = run.Taken
def taken(*given):
    left[0] -= 1
    if not left[0]:
        for number in {signals}:
            os.kill(os.getpid(), number)
    return real(*given)
run.Taken = taken
"""


def signalled(folder: Path, count: int, *signals: int, json: bool = False) -> Any:
    before = SIGNALLED.format(count=count, signals=[int(number) for number in signals])
    return run_alone(folder, *IN, "run", *(["--json"] if json else []), before=before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_with_a_checkpoint(
    number: signal.Signals, folder: Path, cli: Run
) -> None:
    done = signalled(folder, 7, number)
    assert done.returncode == 128 + number
    assert done.stdout.startswith("checkpoint run/step-00000007\n")
    assert done.stderr.endswith(
        f"sexpgpu run: stopped by {number.name} after step 7; the same command goes on\n"
    )
    assert steps("run") == ["step-00000005", "step-00000007"]
    assert [r.step for r in read_metrics("run") if r.kind == "train"] == list(range(1, 8))
    if number is signal.SIGINT:
        assert cli(*IN, "run")[0] == 0
        cli(*IN, "whole")
        last = "step-00000020/"
        run, whole = (
            {name: b for name, b in contents(Path(place)).items() if name.startswith(last)}
            for place in ("run", "whole")
        )
        assert run == whole


def test_a_second_signal_ends_it_at_once(folder: Path) -> None:
    done = signalled(folder, 7, signal.SIGINT, signal.SIGTERM)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stdout == ""
    assert steps("run") == ["step-00000005"]


def test_a_signal_at_the_last_step_changes_nothing(folder: Path) -> None:
    done = signalled(folder, 20, signal.SIGINT, json=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)["step"] == 20
    assert "stopped" not in done.stderr


def test_ctrl_c_before_the_first_step(folder: Path) -> None:
    """As a package is imported."""
    hook = (
        "import os, signal, sys\n"
        "def hook(event, given):\n"
        "    if event == 'import' and given[0] == 'optax':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.addaudithook(hook)\n"
    )
    done = run_alone(folder, *IN, "run", before=hook)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "sexpgpu: stopped by SIGINT"
    assert not Path("run").exists()


#: Makes stdin the terminal whose keys send signals.
TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are Unix's")
def test_ctrl_c_on_a_terminal(folder: Path) -> None:
    """The terminal sends the signal, and the display lets go of it."""
    import pty

    parent, child = pty.openpty()
    Path("line.sx").write_text(TEXT.replace(":steps 20", ":steps 1000000"))
    process = subprocess.Popen(
        command(*IN, "run", before=TERMINAL),
        cwd=folder,
        env=environment(TERM="xterm"),
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=child,
        start_new_session=True,
        text=True,
    )
    os.close(child)
    shown = ""
    while "saved" not in shown and "step-" not in shown:
        shown += os.read(parent, 4096).decode(errors="replace")
    os.write(parent, b"\x03")
    with open(parent, "rb", buffering=0, closefd=False) as terminal:
        shown += _rest(terminal.fileno())
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    os.close(parent)
    assert re.match(r"checkpoint run/step-\d{8}\n", out)
    assert "stopped by SIGINT after step" in shown


def _rest(handle: int) -> str:
    """What is shown until nobody has the terminal any more."""
    shown = b""
    try:
        while piece := os.read(handle, 4096):
            shown += piece
    except OSError:
        pass
    return shown.decode(errors="replace")
