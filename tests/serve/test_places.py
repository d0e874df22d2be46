"""Weights that ONNX Runtime reads by itself: wherever they lie, and whatever becomes of them.

Each is served twice, as it is lowered and as it was kept.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.artifact import ExportOptions, export_model
from sexpgpu.export.graph.reference import evaluate
from sexpgpu.export.graph.types import Array
from sexpgpu.export.subject import from_checkpoint
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import MappedTensors
from sexpgpu.serve import Client, host, load, session
from sexpgpu.serve.hosted import Shaping, open_operand
from support.exports import checkpoint, export
from support.exports import load as load_export
from support.serving import serve_process

#: Weights of every kind: bf16, of no elements, bool, and in f32 tensors that do not begin at a
#: multiple of four bytes once a bf16 one of odd length stands before them.
EVERY_KIND = """
(def record (fields :x (list f32 5)))
(defmodel net ()
  (parts w (param (list 5) :dtype bf16 :init (normal 1.0))
         none (param (list 0 5) :init (normal 1.0))
         on (param (list 5) :dtype bool :init (ones))
         off (param (list 5) :dtype bool :init (zeros))
         m (param (list 5 3) :init (normal 1.0))
         d (param (list 3) :dtype f64 :init (normal 1.0))
         k (param (list 3) :dtype i64 :init (ones)))
  (apply (x)
    (let (h (where on (* x (cast w f32)) x)
          h (where off (* h 100.0) h)
          y (matmul h m))
      (list :y y :none (+ none 1.0) :sum (sum none :axis 0) :d (* (cast y f64) d)
            :k (+ k (cast y i64))))))
(def model (net))
"""

X = np.linspace(-2, 2, 5, dtype=np.float32).reshape(1, 5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint `run` and its exports `plain` and `half`."""
    folder = tmp_path_factory.mktemp("every")
    checkpoint(EVERY_KIND, folder)
    export(EVERY_KIND, folder, "plain")
    export(EVERY_KIND, folder, "half", weights="bf16")
    return folder


@pytest.fixture
def want(made: Path) -> dict[str, Array]:
    """What the program means."""
    model, weights, _ = load_export(made / "plain")
    return evaluate(model.graph, {model.graph.inputs[0].name: X}, weights)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SEXPGPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def exported(made: Path, tmp_path: Path) -> Path:
    """A copy of the export, to do things to."""
    return Path(shutil.copytree(made / "plain", tmp_path / "export"))


def answer(operand: Path | str) -> dict[str, Array]:
    with load(str(operand), device="cpu") as model:
        found: dict[str, Array] = model(X)
    return found


def check(operand: Path | str, want: dict[str, Array], tolerance: float = 1e-6) -> None:
    """It gives these answers, served anew and as it was kept."""
    first, second = answer(operand), answer(operand)
    assert list(first) == list(second) == list(want)
    for name, array in want.items():
        assert first[name].tobytes() == second[name].tobytes()
        assert (first[name].dtype, first[name].shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(
            first[name].astype(float), array.astype(float), tolerance, tolerance
        )


@pytest.mark.parametrize("operand", ["plain", "run", "run/step-00000000"])
def test_weights_of_every_kind(made: Path, want: dict[str, Array], operand: str) -> None:
    check(made / operand, want)


def test_an_export_with_bf16_weights(made: Path, want: dict[str, Array]) -> None:
    check(made / "half", want, 0.05)


def test_most_are_read_where_they_are(exported: Path) -> None:
    hosted = open_operand(str(exported), Shaping())
    assert sorted(hosted.weight_paths.values()) == ["none", "off", "on"]
    assert set(hosted.files) == {str(exported / "model.json"), str(exported / "params.safetensors")}


NAMES = ["a space", "ünï ☃", "a\nline", "%41", "-o", "a,b;c|d=e", "x" * 255, "…/deep"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name(
    exported: Path, tmp_path: Path, want: dict[str, Array], name: str
) -> None:
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    exported.rename(place)
    check(place, want)


def test_a_name_that_is_not_utf_8(exported: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff")
    exported.rename(odd)
    (tmp_path / "link").symlink_to(odd)
    for place in (odd, tmp_path / "link"):
        with pytest.raises(SexpgpuError, match="not UTF-8") as caught:
            load(str(place))
        assert caught.value.code == "E-FILE-001"


@pytest.mark.parametrize(("here", "operand"), [("", "export"), ("export", "."), ("a/b", "../..")])
def test_a_relative_operand(
    exported: Path,
    tmp_path: Path,
    want: dict[str, Array],
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    operand: str,
) -> None:
    if here == "a/b":
        exported = exported.rename(tmp_path / "other")
        (exported / here).mkdir(parents=True)
        monkeypatch.chdir(exported / here)
    else:
        monkeypatch.chdir(tmp_path / here)
    check(operand, want)
    with load(operand, device="cpu") as model:
        monkeypatch.chdir("/")
        assert model(X)["y"].tobytes() == answer(exported)["y"].tobytes()


@pytest.mark.parametrize("what", ["weights", "weights, absolute", "folder", "folder of folder"])
def test_links(exported: Path, tmp_path: Path, want: dict[str, Array], what: str) -> None:
    place = exported
    if what.startswith("weights"):
        (tmp_path / "blobs").mkdir()
        (exported / "params.safetensors").rename(tmp_path / "blobs" / "aaaa")
        blobs = "../blobs" if what == "weights" else tmp_path / "blobs"
        (exported / "params.safetensors").symlink_to(f"{blobs}/aaaa")
    else:
        place = tmp_path / "link"
        place.symlink_to(exported if what == "folder" else tmp_path)
        if what == "folder of folder":
            place /= "export"
    check(place, want)


def test_the_link_leads_to_other_weights(
    made: Path, exported: Path, tmp_path: Path, want: dict[str, Array]
) -> None:
    """Of the same shapes: what was kept is used, and their values are."""
    check(exported, want)
    other = tmp_path / "other"
    shutil.copytree(exported, other)
    _change_weights(other / "params.safetensors")
    (exported / "params.safetensors").unlink()
    (exported / "params.safetensors").symlink_to("../other/params.safetensors")
    assert answer(exported)["y"].tobytes() == answer(other)["y"].tobytes() != want["y"].tobytes()


def _change_weights(path: Path, keep_time: bool = False) -> None:
    """Gives the weight `m` the other sign, where it stands."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    with MappedTensors(path) as tensors:
        entry = tensors.entry("m")
    for place in range(entry.offset + 3, entry.offset + entry.nbytes, 4):
        data[place] ^= 0x80
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("how", ["in place", "with its time", "replaced"])
def test_files_that_were_replaced_by_others_of_the_same_name(
    exported: Path, want: dict[str, Array], how: str
) -> None:
    check(exported, want)
    before = open_operand(str(exported), Shaping()).identity
    if how == "replaced":
        shutil.copy(exported / "params.safetensors", exported / "new")
        _change_weights(exported / "new", keep_time=True)
        (exported / "new").rename(exported / "params.safetensors")
    else:
        _change_weights(exported / "params.safetensors", keep_time=how == "with its time")
    np.testing.assert_allclose(answer(exported)["y"], -want["y"], 1e-6)
    assert open_operand(str(exported), Shaping()).identity != before


def test_a_step_that_was_written_anew(
    tmp_path: Path, made: Path, want: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's checkpoint under the name of one that was served."""
    check(made / "run", want)
    location = checkpoint(EVERY_KIND.replace("100.0", "10.0"), tmp_path / "first")
    step = Path(location) / "step-00000000"
    check(location, want)
    other = checkpoint(EVERY_KIND.replace("(* x (cast", "(+ x (cast"), tmp_path / "second")
    shutil.rmtree(step)
    shutil.copytree(Path(other) / step.name, step)
    assert answer(location)["y"].tobytes() == answer(other)["y"].tobytes() != want["y"].tobytes()


def _replace_weights(place: Path) -> None:
    shutil.copy(place / "params.safetensors", place / "new")
    _change_weights(place / "new")
    (place / "new").rename(place / "params.safetensors")


def _rename(place: Path) -> None:
    place.rename(place.with_name("moved"))


def _replace_folder(place: Path) -> None:
    shutil.copytree(place, place.with_name("new"))
    _change_weights(place.with_name("new") / "params.safetensors")
    _rename(place)
    place.with_name("new").rename(place)


CHANGES: list[Callable[[Path], None]] = [_replace_weights, _rename, _replace_folder, shutil.rmtree]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_served_stays_what_it_was(
    exported: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Whatever takes its place: only who writes into the file itself reaches it."""
    want = answer(exported)
    with (
        serve_process(exported, tmp_path / "s", "--device=cpu") as server,
        Client(server.path) as client,
    ):
        change(exported)
        for _ in range(3):
            found = client.call(X)
            assert all(found[name].tobytes() == array.tobytes() for name, array in want.items())


def test_an_export_anew_of_what_is_served(
    made: Path, exported: Path, tmp_path: Path, want: dict[str, Array]
) -> None:
    with (
        serve_process(exported, tmp_path / "s", "--device=cpu") as server,
        Client(server.path) as client,
    ):
        before = client.call(X)["y"]
        export_model(from_checkpoint(str(made / "run"), trained=True), exported, ExportOptions())
        assert client.call(X)["y"].tobytes() == before.tobytes()
    check(exported, want)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_while_it_is_loaded_is_refused(
    exported: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    kept: bool,
) -> None:
    """Between the look at its files and ONNX Runtime's own."""
    if kept:
        answer(exported)

    def changed(*arguments: object) -> object:
        change(exported)
        return session.open_session(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "open_session", changed)
    with pytest.raises(SexpgpuError) as caught:
        load(str(exported), device="cpu")
    assert caught.value.code in ("E-FILE-001", "E-VERIFY-002")
    if change in (_replace_weights, _replace_folder):
        assert caught.value.message == "the file changed while it was loaded"


def test_an_onnx_file_that_changes_while_it_is_loaded(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported / "model.onnx"

    def changed(*arguments: object) -> object:
        path.write_bytes(path.read_bytes())
        return session.open_session(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "open_session", changed)
    with pytest.raises(SexpgpuError, match="changed while it was loaded") as caught:
        load(str(path), device="cpu")
    assert caught.value.code == "E-FILE-001"


@pytest.mark.skipif(sys.platform != "linux", reason="serve needs Linux")
@pytest.mark.parametrize("damage", ["cut", "gone", "a folder", "a dangling link"])
def test_weights_that_cannot_be_read(exported: Path, damage: str) -> None:
    path = exported / "params.safetensors"
    data = path.read_bytes()
    answer(exported)
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-4])
    elif damage == "a folder":
        path.mkdir()
    elif damage == "a dangling link":
        path.symlink_to("nothing")
    with pytest.raises(SexpgpuError) as caught:
        load(str(exported), device="cpu")
    assert caught.value.code == ("E-TENSORS-001" if damage == "cut" else "E-FILE-001")
