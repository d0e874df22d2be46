"""Images in a folder of class folders."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sexpgpu.export.graph.types import Array, TensorType
from sexpgpu.export.language.loaders import Loader
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.data.dataset import Dataset, Split, part_of, portion
from sexpgpu.tools.train.data.files import find, unreadable

if TYPE_CHECKING:
    from PIL import Image

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_PIXELS_AT_MOST = 89_478_485
"""From here on Pillow warns of a decompression bomb."""

_KEPT_BYTES = 1 << 30
_DECODERS = 8
_SAMPLES = 64


class ImagesDataset(Dataset):
    """A record is an image, resized without regard to its proportions, and its class's number.

    Classes are numbered from 0 in the order of their folders' names.  Images are decoded when they
    are first asked for, turned as their EXIF orientation says, and kept as bytes up to 1 GiB: an
    epoch asks for each once, so those that came first are as good to keep as any.
    """

    def __init__(
        self,
        folder: Path,
        classes: Sequence[str],
        files: Sequence[tuple[Path, int]],
        fields: Mapping[str, TensorType],
    ) -> None:
        self.fields = fields
        self.count = len(files)
        self.classes = classes
        self._folder = folder
        self._paths = [path for path, _ in files]
        self._labels = np.array([label for _, label in files], np.int32)
        _, self._channels, self._height, self._width = (
            size if isinstance(size, int) else 0 for size in fields["image"].shape
        )
        self._kept: dict[int, Array] = {}
        self._bytes_left = _KEPT_BYTES

    def batch(self, indices: Sequence[int] | Array) -> dict[str, Array]:
        records = [int(index) for index in indices]
        missing = [record for record in dict.fromkeys(records) if record not in self._kept]
        with ThreadPoolExecutor(min(_DECODERS, os.cpu_count() or 1)) as pool:
            fresh = dict(zip(missing, pool.map(self._decoded, missing), strict=True))
        pixels = np.stack([self._kept[r] if r in self._kept else fresh[r] for r in records])
        for record, image in fresh.items():
            if image.nbytes <= self._bytes_left:
                self._kept[record] = image
                self._bytes_left -= image.nbytes
        image = pixels.astype(np.float32) / np.float32(255)
        return {"image": image, "label": self._labels[np.asarray(records, np.int64)]}

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        samples = {self.count * number // _SAMPLES for number in range(_SAMPLES)}
        for record, path in enumerate(self._paths):
            try:
                digest.update(f"{path.relative_to(self._folder)}\0{path.stat().st_size}\0".encode())
                if record in samples:
                    digest.update(path.read_bytes())
            except OSError as error:
                raise unreadable(str(path), error) from None
        return f"images:{self.count}:{digest.hexdigest()}"

    def _decoded(self, record: int) -> Array:
        """The image as [channels, height, width] u8.  Raises E-DATA-002 and E-DATA-003."""
        from PIL import Image, ImageOps

        path = self._paths[record]
        try:
            with Image.open(path) as image:
                if image.width * image.height > _PIXELS_AT_MOST:
                    raise ValueError(f"{image.width} x {image.height} pixels are too many")
                turned = ImageOps.exif_transpose(_of_bytes(image)).convert(_MODES[self._channels])
                size = (self._width, self._height)
                if turned.size != size:
                    turned = turned.resize(size, Image.Resampling.BILINEAR)
                pixels = np.asarray(turned).reshape(self._height, self._width, self._channels)
                return np.ascontiguousarray(pixels.transpose(2, 0, 1))
        except (FileNotFoundError, PermissionError) as error:
            raise unreadable(str(path), error) from None
        # Pillow's readers fail in many ways at a damaged file.
        except Exception as error:
            raise SexpgpuError(
                "E-DATA-003",
                f"the image cannot be read: {str(error)[:200]}",
                place=str(path),
                help="remove it from the folder or replace it",
            ) from None


def _of_bytes(image: Image.Image) -> Image.Image:
    """An image of one of Pillow's modes with 8 bits a channel; others would be cut off at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    if image.mode == "F":
        raise ValueError("its pixels are floats, of which the largest is not known")
    from PIL import Image

    pixels = np.asarray(image).astype(np.int64)
    return Image.fromarray((np.clip(pixels, 0, 65_535) // 257).astype(np.uint8))


def open_images(loader: Loader) -> ImagesDataset:
    """The data of an `images` loader; `:split` takes its part of every class.

    Raises E-DATA-002, E-DATA-003, E-DATA-004, E-DATA-007 and E-DATA-010.
    """
    name = str(loader.file)
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise SexpgpuError(
            "E-DATA-010",
            "images are read by Pillow, which is not installed",
            place=name,
            help="pip install 'sexpgpu[train]'",
        ) from None
    channels = loader.fields["image"].shape[1]
    if channels not in _MODES:
        raise SexpgpuError(
            "E-DATA-004",
            f"an image has no {channels} channels",
            place=name,
            expected=":channels 1 (grey), 3 (RGB) or 4 (RGBA)",
        )
    folder = find(name)
    classes = _classes(folder)
    found = [list(_images_in(folder / of)) for of in classes]
    files = _split(found, loader.options.get("split"), name)
    return ImagesDataset(folder, classes, files, loader.fields)


def _split(
    found: Sequence[Sequence[Path]], split: Split | None, folder: str
) -> list[tuple[Path, int]]:
    """The images and labels of a part of every class."""
    part_of(sum(map(len, found)), split, folder, "images")
    files = [
        (path, label)
        for label, paths in enumerate(found)
        for path in (paths[place] for place in portion(len(paths), split))
    ]
    if not files:
        raise SexpgpuError(
            "E-DATA-007",
            ":split takes no image of any class",
            place=folder,
            came=f"at most {max(map(len, found)):,} images in a class",
            help="take a wider :split, or more images",
        )
    return files


def _classes(folder: Path) -> list[str]:
    """The names of the class folders, in order."""
    try:
        if not folder.is_dir():
            raise SexpgpuError(
                "E-DATA-002",
                f"`{folder}` is no folder",
                place=str(folder),
                expected="a folder with a folder of images for each class",
            )
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError as error:
        raise unreadable(str(folder), error) from None
    if not names:
        raise SexpgpuError(
            "E-DATA-004",
            "the folder has no class folders",
            place=str(folder),
            expected="a folder of images for each class: cats/1.png, dogs/1.png",
        )
    return names


def _images_in(folder: Path) -> Iterator[Path]:
    """The images in a class folder and the folders in it, in the order of their paths."""

    def fail(error: OSError) -> None:
        raise unreadable(str(error.filename), error) from None

    for place, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(_ENDINGS) and not name.startswith("."):
                yield Path(place) / name
