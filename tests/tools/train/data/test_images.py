"""Folders of images: classes, pixels, and files that are none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data import images
from sexpgpu.tools.train.data.images import ImagesDataset
from support.data import data_error, dataset_of


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def picture(path: str, pixels: object, **options: object) -> None:
    """An image file of these pixels, [height, width] or [height, width, channels]."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels)).save(path, **options)


def shade(value: int, size: int = 4) -> np.ndarray:
    return np.full((size, size), value, np.uint8)


def opened(options: str) -> ImagesDataset:
    data = dataset_of(f'(images "d" {options})')
    assert isinstance(data, ImagesDataset)
    return data


def test_classes_are_folders_in_the_order_of_their_names() -> None:
    picture("d/zebra/1.png", shade(255))
    picture("d/ant/b.png", shade(51))
    picture("d/ant/a.PNG", shade(0))
    picture("d/ant/more/c.png", shade(102))
    Path("d/empty").mkdir()
    Path("d/.hidden").mkdir()
    Path("d/ant/notes.txt").write_text("no image")
    Path("d/beside.txt").write_text("no image")
    data = opened(":size 4 :channels 1")
    assert data.classes == ["ant", "empty", "zebra"]
    assert (data.count, data.tokens) == (4, None)
    batch = data.batch(np.array([3, 0, 1, 2, 3]))
    assert batch["image"].shape == (5, 1, 4, 4)
    assert batch["image"].dtype == np.float32
    assert batch["label"].dtype == np.int32
    assert batch["label"].tolist() == [2, 0, 0, 0, 2]
    shades = [np.float32(n) / np.float32(255) for n in (255, 0, 51, 102, 255)]
    assert batch["image"][:, 0, 1, 2].tolist() == shades


def test_pixels_are_channels_first_and_resized_to_the_size() -> None:
    pixels = np.zeros((2, 6, 3), np.uint8)
    pixels[..., 0], pixels[0, :, 1], pixels[:, 3:, 2] = 255, 255, 255
    picture("d/c/1.png", pixels)
    exact = opened(":size (list 2 6)").batch([0])["image"][0]
    assert np.array_equal(exact, pixels.transpose(2, 0, 1) / np.float32(255))
    small = opened(":size (list 2 2)").batch([0])["image"][0]
    assert small.shape == (3, 2, 2)
    assert (small[0] == 1).all()
    assert small[1].tolist() == [[1, 1], [0, 0]]
    assert (small[2, :, 0] < small[2, :, 1]).all()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_has_the_channels_that_are_asked_for(mode: str, channels: int) -> None:
    Path("d/c").mkdir(parents=True)
    if mode == "I;16":
        Image.fromarray(np.full((4, 4), 65_535, np.uint16)).save("d/c/1.png")
    else:
        suffix = "tif" if mode == "CMYK" else "png"
        Image.new("L", (4, 4), 255).convert("RGB").convert(mode).save(f"d/c/1.{suffix}")
    found = opened(f":size 4 :channels {channels}").batch([0])["image"]
    assert found.shape == (1, channels, 4, 4)
    assert (found == 1).all()


def test_sixteen_bits_keep_their_proportion() -> None:
    picture("d/c/1.png", np.array([[0, 257 * 51], [257 * 102, 65_535]], np.uint16))
    found = opened(":size 2 :channels 1").batch([0])["image"][0, 0]
    assert (found * 255).round().tolist() == [[0, 51], [102, 255]]


def test_images_are_turned_as_their_orientation_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    picture("d/c/1.png", np.array([[255, 0]], np.uint8), exif=exif)
    assert opened(":size (list 2 1) :channels 1").batch([0])["image"].ravel().tolist() == [1, 0]


def test_a_split_is_of_every_class() -> None:
    for n in range(4):
        picture(f"d/a/{n}.png", shade(n))
        picture(f"d/b/{n}.png", shade(100 + n))
    first, rest = opened(":size 4 :split (list 0 0.75)"), opened(":size 4 :split (list 0.75 1)")
    assert first.batch(range(first.count))["label"].tolist() == [0, 0, 0, 1, 1, 1]
    batch = rest.batch(range(rest.count))
    assert (batch["image"][:, 0, 0, 0] * 255).round().tolist() == [3, 103]
    error = data_error('(images "d" :size 4 :split (list 0 0.2))', "E-DATA-007")
    assert error.came == "at most 4 images in a class"


def test_images_are_decoded_once_and_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(4):
        picture(f"d/a/{n}.png", shade(n))
    monkeypatch.setattr(images, "_KEPT_BYTES", 2 * 48)
    data = opened(":size 4")
    first = data.batch([2, 0, 1, 3])["image"]
    for n in (0, 2):
        Path(f"d/a/{n}.png").unlink()
    assert np.array_equal(data.batch([2, 0, 1, 3])["image"], first)
    Path("d/a/3.png").unlink()
    with pytest.raises(SexpgpuError) as caught:
        data.batch([3])
    assert caught.value.code == "E-DATA-002"


@pytest.mark.parametrize("form", ["png", "jpg", "gif", "bmp", "tif", "webp"])
def test_images_that_are_cut_short(form: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
    picture(f"d/a/1.{form}", noise)
    whole = Path(f"d/a/1.{form}").read_bytes()
    data = opened(":size 8")
    for length in (0, 1, 20, len(whole) // 2):
        Path(f"d/a/1.{form}").write_bytes(whole[:length])
        with pytest.raises(SexpgpuError) as caught:
            data.batch([0])
        assert caught.value.code == "E-DATA-003"
        assert caught.value.place == os.path.join("d", "a", f"1.{form}")


def test_the_first_broken_image_of_a_batch_is_named() -> None:
    for n in range(6):
        picture(f"d/a/{n}.png", shade(n))
    data = opened(":size 4")
    for n in (1, 4):
        Path(f"d/a/{n}.png").write_bytes(b"no image")
    with pytest.raises(SexpgpuError) as caught:
        data.batch([5, 4, 3, 2, 1])
    assert caught.value.place == os.path.join("d", "a", "4.png")


def test_an_image_of_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_PIXELS_AT_MOST", 15)
    picture("d/a/1.png", shade(1))
    with pytest.raises(SexpgpuError) as caught:
        opened(":size 4").batch([0])
    assert caught.value.code == "E-DATA-003"
    assert "4 x 4 pixels are too many" in caught.value.message


def test_pixels_that_are_floats() -> None:
    picture("d/a/1.tif", np.ones((4, 4), np.float32))
    with pytest.raises(SexpgpuError) as caught:
        opened(":size 4").batch([0])
    assert "its pixels are floats" in caught.value.message


def test_folders_that_hold_no_classes() -> None:
    assert data_error('(images "d" :size 4)', "E-DATA-002").message == "`d` is missing"
    picture("d/1.png", shade(1))
    error = data_error('(images "d" :size 4)', "E-DATA-004")
    assert error.message == "the folder has no class folders"
    error = data_error('(images "d/1.png" :size 4)', "E-DATA-002")
    assert error.message == "`d/1.png` is no folder"
    Path("d/a").mkdir()
    data_error('(images "d" :size 4)', "E-DATA-007")
    assert "channels" in data_error('(images "d" :size 4 :channels 2)', "E-DATA-004").message


def test_images_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    error = data_error('(images "d" :size 4)', "E-DATA-010")
    assert error.help == "pip install 'sexpgpu[train]'"


def test_fingerprints_are_of_names_and_content() -> None:
    picture("d/a/1.png", shade(1))
    picture("d/a/2.png", shade(2))
    one = opened(":size 4").fingerprint()
    assert opened(":size 8").fingerprint() == one
    Path("d").rename("e")
    data = dataset_of('(images "e" :size 4)')
    assert data.fingerprint() == one
    picture("e/a/2.png", shade(3))
    assert data.fingerprint() != one
    Path("e/a/1.png").unlink()
    assert dataset_of('(images "e" :size 4)').fingerprint() != one
