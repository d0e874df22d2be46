"""How models are exported, beside PyTorch: `python -m sexpgpu.tools.bench.export`.

Each model is exported by turns by this project and by `torch.onnx.export` (dynamo) from
transformers' class with the same weights, each time in a process of its own; then ONNX Runtime runs
what both have written, by turns.  Tables go to stdout; `--json` writes the figures, `--write` the
tables into a page.

A model's figures are kept in the folder when it has been measured: `--resume` measures only those
that are not there.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.bench.export_models import MODELS, prepare
from sexpgpu.tools.bench.export_report import BEGIN, END, as_data, tables
from sexpgpu.tools.bench.export_turns import ContenderError, Effort, measure
from sexpgpu.tools.bench.report import write_into
from sexpgpu.tools.cli import fail

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "build" / "bench" / "export"
NEEDED = ("torch", "transformers", "onnxscript")


@click.command()
@click.option(
    "--model", "models", multiple=True, type=click.Choice([*MODELS]), help="Default: all."
)
@click.option("--resume", is_flag=True, help="Take the figures of models that are there already.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures here.")
@click.option(
    "--write", "page", type=click.Path(path_type=Path), help="Write tables into this page."
)
@click.option("--exports", default=3, show_default=True, help="Of each exporter.")
@click.option("--rounds", default=12, show_default=True, help="Of runs.")
@click.option("--seconds", default=0.5, show_default=True, help="Of each turn.")
@click.option("--threads", default=1, show_default=True, help="Of ONNX Runtime, while it runs.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True)
def main(
    models: tuple[str, ...],
    resume: bool,
    json_file: Path | None,
    page: Path | None,
    exports: int,
    rounds: int,
    seconds: float,
    threads: int,
    folder: Path,
) -> None:
    """Measure this export beside torch.onnx.export, in one run by turns."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise click.ClickException(
            f"it takes {', '.join(NEEDED)}; install {', '.join(missing)} with pip"
        )
    found: dict[str, Any] = {}
    effort = Effort(exports, rounds, seconds, threads)
    for name in models or MODELS:
        kept = folder / name / "figures.json"
        if not (resume and kept.is_file()):
            click.echo(f"measuring {name} …", err=True)
            _measure(name, folder, effort, kept)
        found[name] = json.loads(kept.read_text())
    data = as_data(found, threads)
    text = tables(data)
    click.echo(text)
    if json_file is not None:
        json_file.write_text(json.dumps(data, indent=2) + "\n")
    if page is not None:
        write_into(page, text, BEGIN, END)
    sys.exit(0 if all(ratio["holds"] for ratio in data["ratios"]) else 1)


def _measure(name: str, folder: Path, effort: Effort, kept: Path) -> None:
    """Measures one model and keeps its figures."""
    try:
        figures = measure(prepare(MODELS[name], folder), effort).as_data()
    except SexpgpuError as error:
        fail(error, as_json=False)
    except ContenderError as error:
        raise click.ClickException(f"{name}: {error}") from None
    kept.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
