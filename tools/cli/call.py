"""`sexpgpu call`: one call of a server, from the shell."""

from __future__ import annotations

import difflib
import io
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.cli.options import json_option

if TYPE_CHECKING:
    from sexpgpu.export.graph.types import Array
    from sexpgpu.serve import Client
    from sexpgpu.serve.protocol import TensorSpec

#: What JSON has no numbers for.
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@click.command(name="call")
@click.argument("socket", metavar="SOCKET")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=VALUE",
    help="JSON, a .npy or .json file, or `-` for one on stdin; every input once.",
)
@click.option(
    "--npy", multiple=True, metavar="NAME=FILE", help="Write this output to a .npy file instead."
)
@click.option("-o", "--output-dir", metavar="DIR", help="Write every output to DIR/NAME.npy.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS")
@json_option
def command(
    socket: str,
    inputs: tuple[str, ...],
    npy: tuple[str, ...],
    output_dir: str | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Call the model that is served on SOCKET, and print its outputs as JSON.

    Without --input, show what the model takes and gives; a model that takes nothing is called.
    """
    from sexpgpu.serve import Client

    texts = _pairs("--input", inputs)
    files = {name: Path(file) for name, file in _pairs("--npy", npy).items()}
    with Client(socket, timeout=timeout) as client:
        if not texts and client.inputs:
            _show(client, as_json=as_json)
            return
        _check_names("input", texts, client.inputs)
        _check_names("output", files, client.outputs)
        result = client.call(**{name: _read_value(name, text) for name, text in texts.items()})
        specs = client.outputs
    arrays = {specs[0].name: result} if len(specs) == 1 else result
    if output_dir is not None:
        files = _name_files(Path(output_dir), arrays) | files
    _write_files(arrays, files)
    if as_json or len(files) < len(arrays):
        print_json(arrays, files)
    else:
        for spec in specs:
            click.echo(f"wrote {files[spec.name]}: {spec}")


def _show(client: Client, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(client.about, indent=2))
        return
    about = client.about
    step = "" if about.get("step") is None else f", step {about['step']}"
    click.echo(
        f"{about.get('checkpoint') or 'a model'}{step}, on {about.get('device', 'a device')}"
    )
    for label, specs in (("inputs", client.inputs), ("outputs", client.outputs)):
        for index, spec in enumerate(specs):
            click.echo(f"  {label if index == 0 else '':<7} {spec}")
    given = " ".join(f"--input {spec.name}=…" for spec in client.inputs)
    click.echo(f"call it: sexpgpu call {client.path} {given}")


def _pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE`s by name."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SexpgpuError(
                "E-USAGE-001", f"`{text}` names nothing", expected=f"{flag} NAME=…", exit_code=2
            )
        if name in pairs:
            raise SexpgpuError("E-USAGE-001", f"{flag} {name} is given twice", exit_code=2)
        pairs[name] = value
    if flag == "--input" and sum(value == "-" for value in pairs.values()) > 1:
        raise SexpgpuError("E-USAGE-001", "only one input can be read from stdin", exit_code=2)
    return pairs


def _check_names(kind: str, given: Mapping[str, object], specs: Iterable[TensorSpec]) -> None:
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            raise SexpgpuError(
                "E-CALL-010",
                f"the model has no {kind} `{name}`",
                expected=", ".join(names),
                help=f"did you mean `{close[0]}`?" if close else None,
            )


def _read_value(name: str, text: str) -> Any:
    """JSON as it stands, or what a file or stdin holds."""
    if text == "-":
        return _parse(name, sys.stdin.buffer.read(), "stdin")
    try:
        return _with_numbers(json.loads(text))
    except (ValueError, RecursionError):
        path = Path(text)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SexpgpuError(
            "E-CALL-010",
            f"the input `{name}` is neither JSON nor a file that can be read: {reason}",
            came=text,
            expected="such as [[1, 2]], tokens.npy or -",
        ) from None
    return _parse(name, data, text)


def _parse(name: str, data: bytes, place: str) -> Any:
    """A .npy file's array, or JSON."""
    import numpy as np

    try:
        if not data.startswith(b"\x93NUMPY"):
            return _with_numbers(json.loads(data))
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, RecursionError, EOFError, MemoryError) as error:
        raise SexpgpuError(
            "E-CALL-010",
            f"the input `{name}` is neither .npy nor JSON",
            place=place,
            came=str(error),
        ) from None
    if array.dtype.str[1:] == "V2":
        # NumPy writes a bf16 as two bytes without a name.
        from ml_dtypes import bfloat16

        return array.view(bfloat16)
    return array


def _with_numbers(value: Any) -> Any:
    """JSON's lists with "NaN", "Infinity" and "-Infinity" as numbers."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, str):
        for shown, word in _WORDS.items():
            if value in (shown, word):
                return float(shown)
    return value


def _name_files(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """A file for each output; a name is no path, whatever it holds."""
    files = {name: folder / f"{name.replace('/', '_')}.npy" for name in names}
    if len(set(files.values())) < len(files):
        raise SexpgpuError(
            "E-FILE-001", "two outputs would be written to one file", help="name them with --npy"
        )
    return files


def _write_files(arrays: Mapping[str, Array], files: Mapping[str, Path]) -> None:
    import numpy as np

    for name, path in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                np.save(file, arrays[name], allow_pickle=False)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise SexpgpuError(
                "E-FILE-001", f"cannot write the output: {reason}", place=str(path)
            ) from None


def print_json(arrays: Mapping[str, Array], files: Mapping[str, Path]) -> None:
    """`{"outputs": {"logits": [[0.25, "NaN"]]}}`, and in `files` where the others are."""
    data: dict[str, Any] = {
        "outputs": {n: _plain(array) for n, array in arrays.items() if n not in files}
    }
    if files:
        data["files"] = {name: str(path) for name, path in files.items()}
    click.echo(json.dumps(data))


def _plain(array: Array) -> Any:
    """Nested lists; a float with the digits that its dtype needs, or a word."""
    import numpy as np

    if array.dtype.kind in "ib":
        return array.tolist()
    if array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    shown = [_WORDS.get(text) or float(text) for text in map(str, array.reshape(-1))]
    return _nest(shown, array.shape)


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    size = len(flat) // shape[0] if shape[0] else 0
    return [_nest(flat[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]
