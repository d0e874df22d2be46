"""What docs/serving.md shows is what is printed, and what it says of numbers holds."""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np
import pytest

from sexpgpu.export.initial import write_initial
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve import doctor, host, load, probe
from sexpgpu.serve.hosted import Shaping, open_operand
from sexpgpu.serve.probe import Plan
from sexpgpu.tools.cli.serve import command
from support.serving import plan_of, serve_process, write_onnx, write_slow

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")

LOGARITHMS = """
(def record (fields :x (list f32 7)))
(defmodel logarithms () (parts) (apply (x) (log x)))
(def model (logarithms))
"""

#: The softmax stands in line 5, column 14.
MIXED = """(def record (fields :x (list f32 8)))
(defmodel mixed ()
  (parts l (linear 8 8))
  (apply (x)
             (softmax (l x) :axis 0)))
(def model (mixed))
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("run")
    write_initial(ROOT / "examples" / "tiny.sx", str(where), step=20)
    return str(where)


def run_of(text: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint of a program that stands in the current directory."""
    monkeypatch.chdir(folder)
    Path(name).write_text(text)
    write_initial(Path(name), "run")
    return "run"


def test_the_serving_lines_are_as_shown(tiny: str, tmp_path: Path) -> None:
    [shown] = re.findall(r"^\$ sexpgpu serve /tmp/tiny-run .*\n((?:.+\n)*?)```$", PAGE, re.M)
    with serve_process(tiny, tmp_path / "s", "--device", "cpu") as server:
        lines = "\n".join(server.lines).replace(tiny, "/tmp/tiny-run")
        assert lines.replace(server.path, "/tmp/tiny.sock") + "\n" == shown
        assert re.fullmatch(
            r"sexpgpu serve: stopped by SIGTERM, \d+ calls in \d+ runs\n", server.stop()[1]
        )
    assert "sexpgpu serve: stopped by SIGTERM, 256 calls in 135 runs\n" in PAGE


def test_the_library_is_called_as_shown(tiny: str) -> None:
    [text] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    names: dict[str, np.ndarray] = {}
    exec(text.replace("/tmp/tiny-run", tiny), names)
    for name, shape in re.findall(r"^    (\w+) = .*# (\[.*\])$", text, re.M):
        assert str(list(names[name].shape)) == shape


def test_every_flag_is_in_the_table() -> None:
    options = {p.opts[0] for p in command.params if isinstance(p, click.Option)}
    assert set(re.findall(r"^\| `(--[\w-]+)", PAGE, re.M)) == options


def test_what_is_said_of_limits() -> None:
    options = {p.name: p for p in command.params}
    batch = options["batch"]
    assert isinstance(batch.type, click.IntRange)
    assert f"{batch.default} unless told otherwise, at most {batch.type.max:,}" in PAGE
    assert f"{options['threads'].default} unless told otherwise" in PAGE
    assert f"{options['mode'].default} unless told otherwise" in PAGE
    assert (probe.BUDGET, host._PROBE_SHARE) == (1 / 20, 1 / 5)
    assert "about 50 ms, or a fifth of what loading took" in PAGE
    assert probe._PADDING_COST == 2
    assert "at most two lone runs" in PAGE


@pytest.mark.parametrize(
    "plan",
    [
        plan_of(range(1, 9), 8),
        plan_of([1, 2, 4, 8], 8),
        Plan(4, (0, 1, 2, 3, 4), False, (8,)),
        Plan(8, (0, *[8] * 8), True, (2, 8)),
    ],
    ids=Plan.describe,
)
def test_a_plan_is_described_as_the_table_has_it(plan: Plan) -> None:
    assert f"| `{plan.describe()}` |" in PAGE


def test_bits_that_differ_are_told_as_shown(tmp_path: Path) -> None:
    path = write_onnx(
        tmp_path / "m.onnx", "float[N,7] x", "float[N,7] y", "y = Softmax <axis = 0> (x)"
    )
    with load(str(path)) as model:
        assert f"`one call at a time: {model.about['batch']['why_one']}`" in PAGE


def test_a_run_that_is_slow_is_told_as_shown(tmp_path: Path) -> None:
    with load(str(write_slow(tmp_path / "m.onnx", least=1500)), device="cpu") as model:
        note = model.about["batch"]["why_one"]
    shown = re.sub(r"takes \d+ ms", "takes 147 ms", note)
    assert f"`one call at a time: {shown}`" in PAGE


def test_a_fixed_batch_is_told_as_shown(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "m.onnx", "float[2,7] x", "float[2,7] y", "y = Neg (x)")
    assert f"`one call at a time: {open_operand(str(path), Shaping()).obstacle}`" in PAGE


def test_records_that_mix_are_told_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstacle = open_operand(run_of(MIXED, "mixed.sx", tmp_path, monkeypatch), Shaping()).obstacle
    [shown] = re.findall(r"`` one call at a time: (`output`.*?) … ``", PAGE)
    assert obstacle.startswith(shown)


def test_logarithms_have_the_bits_of_calls_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 records of seven, which ONNX Runtime does not give the same bits in one run."""
    x = np.exp(np.random.default_rng(0).standard_normal((500, 7))).astype(np.float32)
    with load(run_of(LOGARITHMS, "log.sx", tmp_path, monkeypatch), device="cpu") as model:
        assert model.about["batch"]["limit"] == 8
        together = model(x)
        alone = np.concatenate([model(record) for record in x])
    assert together.tobytes() == alone.tobytes()


def test_a_dimension_without_a_name_is_called_after_its_place(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "m.onnx", "float[N,T,?] x", "float[N,T,?] y", "y = Neg (x)")
    with pytest.raises(SexpgpuError) as caught:
        open_operand(str(path), Shaping())
    assert caught.value.code == "E-SERVE-004"
    assert caught.value.help == "fix each: --dim T=N --dim x.2=N"
    assert "`x.2` is axis 2 of the input `x`" in PAGE


def test_doctor_prints_such_lines() -> None:
    [shown] = re.findall(r"^\$ sexpgpu doctor\n(.*?)^```$", PAGE, re.M | re.S)
    lines = doctor.describe(doctor.diagnose())
    assert [line.split(" ")[0] for line in shown.split("\n")[:4]] == [
        line.split(" ")[0] for line in lines[:4]
    ]
