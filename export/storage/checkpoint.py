"""Reading a checkpoint: which step a location means, and its files, found whole before use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from sexpgpu.export.storage.cache import check_content, fetch
from sexpgpu.export.storage.location import Location
from sexpgpu.export.storage.weights import Weights
from sexpgpu.schemas.checkpoint import (
    AVERAGES,
    DOCUMENT,
    MODEL,
    PARAMETERS,
    Checkpoint,
    StoredFile,
    read_checkpoint,
)
from sexpgpu.schemas.document import DOCUMENT_LIMIT
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import MappedTensors, sha256_of

_STEP = re.compile(r"step-([0-9]{1,18})")


def step_name(step: int) -> str:
    """The directory of a step: `step-00000020`."""
    return f"step-{step:08d}"


@dataclass(slots=True)
class StoredCheckpoint:
    """A complete step: its document is read, its other files are verified when first used.

    `location` is the step's own, as it is shown to a user.
    """

    location: Location
    document: Checkpoint
    _verified: dict[str, Path] = field(default_factory=dict, repr=False)

    def path(self, name: str) -> Path:
        """A file of the checkpoint on this machine, its size and hash those recorded.

        Raises KeyError for a file that the checkpoint does not speak of, E-CKPT-002 where it is
        not there, E-CKPT-003 where it is damaged, and what `fetch` raises.
        """
        file = self.document.file(name)
        if file is None:
            raise KeyError(name)
        if name not in self._verified:
            location = self.location / name
            try:
                if self.location.is_local:
                    self._verified[name] = _verify(location, file)
                else:
                    self._verified[name] = fetch(location, file)
            except FileNotFoundError:
                raise SexpgpuError(
                    "E-CKPT-002",
                    f"the checkpoint is incomplete: {name} is not there",
                    place=str(location),
                    help="copy the checkpoint again, or name an earlier step",
                ) from None
        return self._verified[name]

    def verify(self) -> None:
        """Verify every file of the checkpoint; a remote one is fetched.

        Raises E-CKPT-002, E-CKPT-003 and E-TENSORS-001, which name the file.
        """
        for file in self.document.files:
            path = self.path(file.name)
            if path.suffix == ".safetensors":
                MappedTensors(path).close()
        if self.document.file(PARAMETERS) is not None:
            self.weights(trained=True)
            self.weights(trained=False)

    def model(self) -> bytes:
        """The bytes of model.json.  Raises E-CKPT-004 where the checkpoint holds no model."""
        if self.document.file(MODEL) is None:
            raise SexpgpuError(
                "E-CKPT-004",
                "the checkpoint holds no model",
                place=str(self.location),
                help="export it from its program: "
                f"sexpgpu export FILE.sx --checkpoint {self.location} -o DIR",
            )
        return self.path(MODEL).read_bytes()

    def weights(self, *, trained: bool) -> Weights:
        """The weights by path: the averages where the run kept them, unless `trained`.

        A parameter that has no average, such as a count, has its trained value either way.
        Raises what `path` raises, E-TENSORS-001, and E-CKPT-003 where the tensors are not the
        parameters that checkpoint.json lists.  Frozen `:load` parameters are read from their own
        files when asked for.
        """
        if self.document.file(PARAMETERS) is None:
            raise SexpgpuError(
                "E-CKPT-002",
                f"the checkpoint is incomplete: {DOCUMENT} speaks of no {PARAMETERS}",
                place=str(self.location),
            )
        averages = None
        if not trained and self.document.file(AVERAGES) is not None:
            averages = MappedTensors(self.path(AVERAGES))
        # With every parameter averaged, the trained ones need not even be fetched.
        names = {parameter.path for parameter in self.document.stored}
        parameters = None
        if averages is None or not names <= set(averages):
            parameters = MappedTensors(self.path(PARAMETERS))
        return Weights(self.document, self.location, parameters, averages)


def open_checkpoint(where: str | Location) -> StoredCheckpoint:
    """The checkpoint that a location means: the step itself, or its newest complete one.

    A step without checkpoint.json is not complete and is passed over, as is anything that is not
    named `step-<n>`.  Raises E-CKPT-001 where there is none, E-CKPT-003 where checkpoint.json is
    damaged, E-JSON-001 and E-JSON-002 for its content, and what `Location` raises.
    """
    location = Location.parse(where) if isinstance(where, str) else where
    if (found := _open_step(location)) is not None:
        return found
    if (named := _STEP.fullmatch(location.name)) is not None:
        padded = step_name(int(named[1]))
        if padded != location.name:
            text = location.text.rstrip("/").rpartition("/")[0]
            path = location.path.rstrip("/").rpartition("/")[0]
            sibling = Location(text or ".", location.filesystem, path) / padded
            if (found := _open_step(sibling)) is not None:
                return found
        raise _no_checkpoint(location, f"this step has no {DOCUMENT}")
    for step in list_steps(location):
        if (found := _open_step(step)) is not None:
            return found
    raise _no_checkpoint(location, f"no step-<n> in it has a {DOCUMENT}")


def list_steps(location: Location) -> list[Location]:
    """The steps of a location by their names, the newest first."""
    try:
        names = location.names()
    except FileNotFoundError:
        raise _no_checkpoint(location, "there is no such directory") from None
    steps = [(int(match[1]), name) for name in names if (match := _STEP.fullmatch(name))]
    return [location / name for _, name in sorted(steps, reverse=True)]


def _open_step(location: Location) -> StoredCheckpoint | None:
    """The step at exactly this location, or None where it is none."""
    place = location / DOCUMENT
    try:
        data = place.read(DOCUMENT_LIMIT)
    except FileNotFoundError:
        return None
    document = read_checkpoint(data, str(place))
    named = _STEP.fullmatch(location.name)
    if named is not None and int(named[1]) != document.step:
        raise SexpgpuError(
            "E-CKPT-003",
            f"{DOCUMENT} is that of another step",
            place=str(place),
            came=f"step {document.step}",
            expected=f"step {int(named[1])}, as the directory is named",
        )
    return StoredCheckpoint(location, document)


def _verify(location: Location, file: StoredFile) -> Path:
    path = Path(location.path)
    with location.reading() as content:
        # A file of another length need not be hashed to be known as damaged.
        size = path.stat().st_size
        sha256 = sha256_of(content) if size == file.size else ""
    check_content(file, size, sha256, str(location))
    return path


def _no_checkpoint(location: Location, reason: str) -> SexpgpuError:
    return SexpgpuError(
        "E-CKPT-001",
        f"no checkpoint at {location}: {reason}",
        place=str(location),
        expected="<location>/step-<n>, or a location that holds such steps",
        help="a web server that lists nothing needs the step: <URL>/step-<n>"
        if location.is_http
        else None,
    )
