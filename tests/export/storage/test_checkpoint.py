"""Reading checkpoints: which step is meant, and every damaged file found and named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.storage.checkpoint import open_checkpoint, step_name
from sexpgpu.export.storage.checkpoint_writer import TensorSet
from sexpgpu.export.storage.location import Location
from sexpgpu.schemas.errors import SexpgpuError
from support.checkpoints import AVERAGES, MODEL, PARAMETERS, save
from support.web import web_server

FILES = [
    "checkpoint.json",
    "params.safetensors",
    "ema.safetensors",
    "optimizer.safetensors",
    "model.json",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save(str(tmp_path / "run"), 20)
    return tmp_path / "run"


def refusal(act: Callable[[], object]) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        act()
    caught.value.render()
    return caught.value


def test_a_step_has_eight_digits() -> None:
    assert step_name(20) == "step-00000020"
    assert step_name(10**9) == "step-1000000000"


def test_a_location_means_its_newest_complete_step(run: Path) -> None:
    save(str(run), 5)
    save(str(run), 100)
    assert open_checkpoint(str(run)).document.step == 100
    save(str(run), 10**9)
    found = open_checkpoint(f"{run}/")
    assert found.document.step == 10**9
    assert str(found.location) == f"{run}/step-1000000000"


def test_what_is_not_complete_is_passed_over(run: Path) -> None:
    (run / "step-00000030").mkdir()
    shutil.copy(run / "step-00000020" / "params.safetensors", run / "step-00000030")
    shutil.copytree(run / "step-00000020", run / ".step-00000040.1234abcd")
    shutil.copytree(run / "step-00000020", run / "step-00000050.old")
    (run / "step-00000060").write_text("a file")
    (run / "step-").mkdir()
    assert open_checkpoint(str(run)).document.step == 20


@pytest.mark.parametrize("name", ["step-00000020", "step-20", "step-00000020/"])
def test_a_step_is_named_directly(run: Path, name: str) -> None:
    save(str(run), 100)
    assert open_checkpoint(f"{run}/{name}").document.step == 20


def test_a_step_is_named_from_its_own_directory(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    assert open_checkpoint("step-20").document.step == 20
    assert open_checkpoint(".").document.step == 20


def test_a_copied_step_may_have_any_name(run: Path) -> None:
    shutil.copytree(run / "step-00000020", run / "best")
    assert open_checkpoint(str(run / "best")).document.step == 20


def test_a_step_under_anothers_name_is_refused(run: Path) -> None:
    shutil.copytree(run / "step-00000020", run / "step-00000030")
    error = refusal(lambda: open_checkpoint(str(run)))
    assert error.code == "E-CKPT-003"
    assert error.came == "step 20"


@pytest.mark.parametrize("name", ["none", "none/step-1", "run/step-21", "empty", "file"])
def test_where_no_checkpoint_is(tmp_path: Path, run: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    error = refusal(lambda: open_checkpoint(str(tmp_path / name)))
    assert error.code == "E-CKPT-001"
    assert str(tmp_path / name) in error.message


def test_the_averages_are_read_unless_the_trained_are_asked_for(run: Path) -> None:
    checkpoint = open_checkpoint(str(run))
    averaged, trained = checkpoint.weights(trained=False), checkpoint.weights(trained=True)
    assert averaged.keys() == trained.keys() == list(PARAMETERS)
    np.testing.assert_array_equal(averaged.array("tok"), AVERAGES["tok"])
    np.testing.assert_array_equal(trained.array("tok"), PARAMETERS["tok"])
    for weights in (averaged, trained):
        assert weights.array("count") == 7
        head = weights.array("head.w")
        assert head.dtype == np.float32
        np.testing.assert_array_equal(head, PARAMETERS["head.w"].astype(np.float32))
        assert weights.parameter("head.w").dtype == "bf16"


def test_without_averages_the_trained_are_read(tmp_path: Path) -> None:
    save(str(tmp_path / "run"), averages=None)
    weights = open_checkpoint(str(tmp_path / "run")).weights(trained=False)
    np.testing.assert_array_equal(weights.array("tok"), PARAMETERS["tok"])


def test_the_model_is_read_where_there_is_one(tmp_path: Path, run: Path) -> None:
    assert open_checkpoint(str(run)).model() == MODEL
    save(str(tmp_path / "old"), model=None)
    error = refusal(open_checkpoint(str(tmp_path / "old")).model)
    assert error.code == "E-CKPT-004"
    assert "sexpgpu export FILE.sx" in str(error.help)


def test_a_complete_checkpoint_verifies(run: Path) -> None:
    open_checkpoint(str(run)).verify()
    with pytest.raises(KeyError):
        open_checkpoint(str(run)).path("none")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_is_found_and_named(run: Path, name: str) -> None:
    path = run / "step-00000020" / name
    content = path.read_bytes()
    for at in {0, 1, 9, len(content) // 2, len(content) - 1, *range(0, len(content), 97)}:
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        error = refusal(lambda: open_checkpoint(str(run)).verify())
        assert error.code in ("E-CKPT-003", "E-JSON-002")
        assert str(error.place).startswith(str(path))


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_grown_file_is_found_and_named(run: Path, name: str) -> None:
    path = run / "step-00000020" / name
    content = path.read_bytes()
    for changed in (content[:0], content[:7], content[:-1], content + b"\0"):
        path.write_bytes(changed)
        error = refusal(lambda: open_checkpoint(str(run)).verify())
        assert error.code == "E-CKPT-003"
        assert error.place == str(path)


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file_is_found_and_named(run: Path, name: str) -> None:
    path = run / "step-00000020" / name
    path.unlink()
    error = refusal(lambda: open_checkpoint(str(run)).verify())
    assert error.code == "E-CKPT-002"
    assert error.place == str(path)


def test_only_what_is_used_is_verified(run: Path) -> None:
    (run / "step-00000020" / "optimizer.safetensors").unlink()
    checkpoint = open_checkpoint(str(run))
    checkpoint.weights(trained=False)
    checkpoint.model()


@pytest.mark.parametrize("which", ["params", "averages"])
@pytest.mark.parametrize(
    "array", [np.zeros((4, 3), np.float32), np.zeros((3, 4), np.float64)], ids=["shape", "dtype"]
)
def test_tensors_that_are_not_the_listed_parameters_are_refused(
    tmp_path: Path, which: str, array: np.ndarray
) -> None:
    tensors = {**PARAMETERS, "tok": array}
    save(str(tmp_path / "run"), **{which: TensorSet.of(tensors)})
    error = refusal(lambda: open_checkpoint(str(tmp_path / "run")).verify())
    assert error.code == "E-CKPT-003"
    assert "`tok`" in error.message


def test_missing_and_unknown_tensors_are_refused(tmp_path: Path) -> None:
    fewer = {path: array for path, array in PARAMETERS.items() if path != "count"}
    save(str(tmp_path / "fewer"), params=TensorSet.of(fewer))
    save(str(tmp_path / "more"), averages=TensorSet.of({"other": np.zeros(1, np.float32)}))
    error = refusal(lambda: open_checkpoint(str(tmp_path / "fewer")).weights(trained=True))
    assert (error.code, error.expected) == ("E-CKPT-003", "count")
    error = refusal(lambda: open_checkpoint(str(tmp_path / "more")).weights(trained=False))
    assert error.code == "E-CKPT-003"
    assert "`other`" in error.message


def test_a_remote_checkpoint_is_read_through_the_cache(cache: Path) -> None:
    save("memory://remote-test/run", 20)
    save("memory://remote-test/run", 30)
    checkpoint = open_checkpoint("memory://remote-test/run")
    assert str(checkpoint.location) == "memory://remote-test/run/step-00000030"
    weights = checkpoint.weights(trained=False)
    np.testing.assert_array_equal(weights.array("tok"), AVERAGES["tok"])
    assert checkpoint.path("params.safetensors").is_relative_to(cache)
    checkpoint.verify()


def test_a_remote_checkpoint_with_a_missing_or_damaged_file_is_named() -> None:
    location = save("memory://remote-torn/run")
    for name in FILES[1:]:
        content = (location / name).read(1 << 20)
        for changed, code in ((content[:-1], "E-CKPT-003"), (None, "E-CKPT-002")):
            if changed is None:
                location.filesystem.rm((location / name).path)
            else:
                with (location / name).writing() as file:
                    file.write(changed)
            error = refusal(lambda: open_checkpoint("memory://remote-torn/run").verify())
            assert error.code == code
            assert error.place == str(location / name)
        with (location / name).writing() as file:
            file.write(content)
    open_checkpoint("memory://remote-torn/run").verify()


@pytest.mark.parametrize("listing", [True, False])
def test_a_checkpoint_on_a_web_server(run: Path, listing: bool) -> None:
    save(str(run), 30)
    with web_server(run.parent, listing=listing) as (url, requests):
        checkpoint = open_checkpoint(f"{url}/run/step-20")
        assert checkpoint.model() == MODEL
        assert checkpoint.document.step == 20
        assert not any("optimizer" in path for path in requests)
        if listing:
            assert open_checkpoint(f"{url}/run").document.step == 30
        else:
            error = refusal(lambda: open_checkpoint(f"{url}/run"))
            assert error.code == "E-CKPT-001"
            assert "step-<n>" in str(error.help)


def test_a_location_object_is_taken_as_well(run: Path) -> None:
    assert open_checkpoint(Location.parse(str(run))).document.step == 20


def test_a_checkpoint_of_every_released_version_is_still_read() -> None:
    """Each directory in `released` was written by the version of its name, and never again."""
    released = sorted((Path(__file__).parent / "released").iterdir())
    assert [path.name for path in released] == ["checkpoint-1"]
    for path in released:
        checkpoint = open_checkpoint(str(path))
        checkpoint.verify()
        weights = checkpoint.weights(trained=True)
        assert weights.keys() == list(PARAMETERS)
        np.testing.assert_array_equal(weights.array("tok"), PARAMETERS["tok"])
