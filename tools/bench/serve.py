"""How fast the server is: `python -m sexpgpu.tools.bench.serve`.

In one run, by turns: ONNX Runtime in process, an echo of the same bytes, this server with 1, 8 and
64 clients, and where they are asked for the servers of `peers`, each installed into an environment
of its own.  Tables go to stdout; `--json` writes the figures, `--write-docs` the page's tables.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from sexpgpu.tools.bench import peers as others
from sexpgpu.tools.bench.models import TRANSFORMERS, prepare
from sexpgpu.tools.bench.report import as_data, tables, write_into
from sexpgpu.tools.bench.rounds import Bench, Effort

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "performance.md"
FOLDER = PROJECT / "build" / "bench"


def _names(known: dict[str, object], text: str) -> list[str]:
    """The names in a list, all of them for `all`."""
    if text == "all":
        return list(known)
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"there is no `{name}`; there are {', '.join(known)}")
    return names


@click.command()
@click.option("--models", default="tiny,small,medium,large", help="Which, or `all`.")
@click.option("--peers", default="", help="Which to compare with, or `all`.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures here.")
@click.option("--write-docs", is_flag=True, help="Write the tables into docs/performance.md.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Of each turn.")
@click.option("--starts", default=3, show_default=True)
@click.option("--calls", default=0, help="Whether memory stays flat: calls of the first model.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True)
def main(
    models: str,
    peers: str,
    json_file: Path | None,
    write_docs: bool,
    rounds: int,
    seconds: float,
    starts: int,
    calls: int,
    folder: Path,
) -> None:
    """Measure the server and what it is compared with, in one run by turns."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = _names(dict(TRANSFORMERS), models)
    compared = _names(dict(others.PEERS), peers)
    for name in compared:
        # Before anything is measured.
        try:
            others.install(others.PEERS[name], folder)
        except others.Unavailable as error:
            click.echo(f"{name}: {error}", err=True)
    exported = [prepare(TRANSFORMERS[name], folder / "models") for name in chosen]
    found = []
    for number, model in enumerate(exported):
        click.echo(f"measuring {model.model.name} …", err=True)
        effort = Effort(rounds, seconds, starts, calls if number == 0 else 0)
        found.append(Bench(folder, effort, compared).measure(model))
    data = as_data(found)
    text = tables(data)
    click.echo(text)
    if json_file is not None:
        json_file.write_text(json.dumps(data, indent=2) + "\n")
    if write_docs:
        write_into(PAGE, text)
    sys.exit(0 if all(ratio["holds"] for ratio in data["ratios"]) else 1)


if __name__ == "__main__":
    main()
