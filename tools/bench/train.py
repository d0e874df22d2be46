"""How fast models are trained: `python -m sexpgpu.tools.bench.train`.

A GPT over characters is trained by turns by this project (the step alone, and all of a run), by JAX
and optax as one writes it by hand, and by PyTorch, eager and compiled: each in a process of its
own, from the same weights on the same batches.  Tables go to stdout; `--json` writes the figures,
`--write-docs` the page's tables.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from sexpgpu.tools.bench.report import write_into
from sexpgpu.tools.bench.train_gpt import GPTS, prepare
from sexpgpu.tools.bench.train_report import BEGIN, END, as_data, tables
from sexpgpu.tools.bench.train_turns import CONTENDERS, Effort, measure

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "performance.md"
FOLDER = PROJECT / "build" / "bench" / "train"


@click.command()
@click.option("--models", default="small", show_default=True, help=f"Of {', '.join(GPTS)}.")
@click.option("--without", default="", help=f"Who stays out, of {', '.join(CONTENDERS)}.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures here.")
@click.option("--write-docs", is_flag=True, help="Write the tables into docs/performance.md.")
@click.option("--rounds", default=12, show_default=True)
@click.option("--seconds", default=0.5, show_default=True, help="Of each turn.")
@click.option("--starts", default=2, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True)
def main(
    models: str,
    without: str,
    device: str,
    json_file: Path | None,
    write_docs: bool,
    rounds: int,
    seconds: float,
    starts: int,
    folder: Path,
) -> None:
    """Measure how fast a GPT is trained, beside JAX by hand and PyTorch, in one run by turns."""
    chosen = _names(list(GPTS), models)
    left_out = _names(list(CONTENDERS), without)
    names = [name for name in CONTENDERS if name not in left_out]
    found = {}
    for name in chosen:
        prepare(GPTS[name], folder / name)
        click.echo(f"measuring {name} …", err=True)
        found[name] = measure(folder / name, device, names, Effort(rounds, seconds, starts))
    data = as_data(found, device)
    text = tables(data)
    click.echo(text)
    if json_file is not None:
        json_file.write_text(json.dumps(data, indent=2) + "\n")
    if write_docs:
        write_into(PAGE, text, BEGIN, END)
    sys.exit(0 if all(ratio["holds"] for ratio in data["ratios"]) else 1)


def _names(known: list[str], text: str) -> list[str]:
    """The names in a list with commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"there is no `{name}`; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    main()
