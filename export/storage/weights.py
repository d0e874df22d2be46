"""The weights of a checkpoint by path, wherever each of them is kept."""

from __future__ import annotations

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.storage.location import Location
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.checkpoint import (
    AVERAGES,
    PARAMETERS,
    STORED_DTYPES,
    Checkpoint,
    LoadedParameter,
    Parameter,
)
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.safetensors import DTYPES
from sexpgpu.schemas.tensor_file import MappedTensors


class Weights:
    """Every parameter's values; nothing is read before it is asked for.

    `averages`, where given, go before `parameters`.  Raises E-CKPT-003 where the files do not hold
    the parameters that the document lists.
    """

    def __init__(
        self,
        document: Checkpoint,
        location: Location,
        parameters: MappedTensors | None,
        averages: MappedTensors | None,
    ) -> None:
        self._parameters = {parameter.path: parameter for parameter in document.parameters}
        self._frozen = document.frozen
        self._files = [file for file in (averages, parameters) if file is not None]
        for name, file in ((AVERAGES, averages), (PARAMETERS, parameters)):
            if file is not None:
                _check_tensors(document, file, str(location / name), whole=name == PARAMETERS)

    @property
    def files(self) -> list[MappedTensors]:
        """The checkpoint's own files of tensors, each before those that it goes before."""
        return self._files

    def keys(self) -> list[str]:
        """The parameters' paths, in the order of the document."""
        return list(self._parameters)

    def parameter(self, path: str) -> Parameter:
        """Shape and dtype, as the program declares them.  Raises KeyError."""
        return self._parameters[path]

    def array(self, path: str) -> Array:
        """The values, row-major, as they are stored: a bf16 parameter as f32, which is exact.

        Raises KeyError for a path that is no parameter's, and for a frozen one E-LOAD-001 where its
        file is missing or has changed, and the other errors of `:load`.
        """
        parameter = self._parameters[path]
        if (load := self._frozen.get(path)) is not None:
            return read_frozen(load, parameter)
        file = next(file for file in self._files if path in file)
        return file.tensor(path)


def read_frozen(load: LoadedParameter, parameter: Parameter) -> Array:
    """A frozen parameter from the file that its run read, if it is still that file.

    A relative path starts at the current directory.  Raises E-LOAD-001 where the file is missing or
    has changed, and what `open_source` and `WeightSource.read` raise.
    """
    source = open_source(load.file)
    source.require(load.sha256)
    values = source.read(load.key, DType(parameter.dtype), parameter.shape)
    return values.astype(DTYPES[STORED_DTYPES[parameter.dtype]], copy=False)


def _check_tensors(document: Checkpoint, file: MappedTensors, place: str, *, whole: bool) -> None:
    """Hold a file's header against the document; `whole`: it has every parameter not frozen."""
    expected = {parameter.path: parameter for parameter in document.stored}
    for name in file:
        entry = file.entry(name)
        if (parameter := expected.get(name)) is None:
            raise _contradiction(place, f"holds `{name}`, which is no parameter of it", None, None)
        want = (STORED_DTYPES[parameter.dtype], tuple(parameter.shape))
        if (entry.dtype, entry.shape) != want:
            raise _contradiction(
                place,
                f"holds `{name}` with another shape or dtype",
                f"{entry.dtype} {list(entry.shape)}",
                f"{want[0]} {list(want[1])}",
            )
    if whole and (missing := [name for name in expected if name not in file]):
        shown = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise _contradiction(place, f"lacks {len(missing)} of its parameters", None, shown)


def _contradiction(
    place: str, message: str, came: str | None, expected: str | None
) -> SexpgpuError:
    return SexpgpuError(
        "E-CKPT-003",
        f"the checkpoint contradicts itself: {place.rpartition('/')[2]} {message}",
        place=place,
        came=came,
        expected=expected,
        help="whatever wrote it is at fault; name an earlier step",
    )
