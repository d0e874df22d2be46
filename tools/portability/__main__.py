"""`python -m sexpgpu.tools.portability`: examples in runtimes, as a table or as JSON."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.bench.report import machine, write_into
from sexpgpu.tools.portability import WORK
from sexpgpu.tools.portability.cases import EXAMPLES, Form, find_programs, prepare
from sexpgpu.tools.portability.environments import Unavailable, install
from sexpgpu.tools.portability.pages import check_page
from sexpgpu.tools.portability.runtime import Runtime, read_runtimes
from sexpgpu.tools.portability.table import BEGIN, END, tables
from sexpgpu.tools.portability.trial import Outcome, attempts, stored

PROFILES: tuple[Profile, ...] = ("portable", "fused")


@click.command()
@click.argument("examples", nargs=-1, metavar="[EXAMPLE|PROGRAM.sx]...")
@click.option("--runtime", "names", multiple=True, metavar="NAME", help="Only this; repeatable.")
@click.option("--profile", type=click.Choice(["portable", "fused", "both"]), default="both")
@click.option("--again", is_flag=True, help="Run also what was run before and is as it was.")
@click.option("--last", is_flag=True, help="Run nothing; what came of the last runs.")
@click.option("--json", "as_json", is_flag=True, help="Print data.")
@click.option("--write", "page", metavar="PAGE", type=click.Path(path_type=Path))
@click.option("--keep", "work", metavar="DIR", type=click.Path(path_type=Path), default=WORK,
              help="Where exports, environments and results are kept.")  # fmt: skip
def main(
    examples: tuple[str, ...],
    names: tuple[str, ...],
    profile: str,
    again: bool,
    last: bool,
    as_json: bool,
    page: Path | None,
    work: Path,
) -> None:
    """Run the exports of examples, all of them or those named, in runtimes, or those of programs
    of your own: with the weights that they load, else with random ones."""
    runtimes = read_runtimes()
    programs = _programs(examples)
    for name in names:
        if name not in runtimes:
            raise click.UsageError(f"no runtime is called {name}; there are {', '.join(runtimes)}")
    chosen = {name: runtimes[name] for name in names or runtimes}
    forms = [Form(each) for each in PROFILES if profile in ("both", each)]
    work = work.absolute()
    if last:
        found = [
            outcome
            for name in programs
            for form in forms
            for runtime in chosen.values()
            for outcome in stored(runtime, name, form, work)
        ]
        data = _data(chosen, found, {}, {})
    else:
        data = _run(programs, chosen, forms, work, again=again, pages=not examples)
    if page is not None:
        write_into(page, tables(data), BEGIN, END)
    click.echo(json.dumps(data, indent=2) if as_json else tables(data))


def _programs(asked: Sequence[str]) -> dict[str, Path]:
    """The examples or files that are asked for, by name; every example where none is."""
    known = find_programs()
    found: dict[str, Path] = {}
    for name in asked:
        path = Path(name).absolute()
        if name in known:
            found[name] = known[name]
        elif path.suffix != ".sx":
            raise click.UsageError(f"no example is called {name}; there are {', '.join(known)}")
        elif not path.is_file():
            raise click.UsageError(f"there is no file {name}")
        elif path.stem in found or known.get(path.stem, path) != path:
            raise click.UsageError(f"{name} has the name of another program; give it its own")
        else:
            found[path.stem] = path
    return found or known


def _run(
    programs: Mapping[str, Path],
    chosen: Mapping[str, Runtime],
    forms: Sequence[Form],
    work: Path,
    *,
    again: bool,
    pages: bool,
) -> dict[str, Any]:
    """Everything that was chosen, as data."""
    places: dict[str, Path] = {}
    obstacles: dict[str, str] = {}
    for runtime in chosen.values():
        try:
            places[runtime.name] = install(runtime, work)
        except Unavailable as error:
            obstacles[runtime.name] = str(error)
            _say(f"{runtime.name}: not set up: {error}")
    outcomes: list[Outcome] = []
    skipped: dict[str, str] = {}
    for name, program in programs.items():
        if program.parent != EXAMPLES:
            # What it loads may be another by now.
            shutil.rmtree(work / "cases" / name, ignore_errors=True)
        for form in forms:
            begin = time.monotonic()
            prepared = partial(prepare, program, work=work)
            try:
                prepared(form)
            except SexpgpuError as error:
                skipped[name] = f"{error.code}: {error.message}"
                _say(f"{name}: {skipped[name]}")
                break
            _say(f"{name} {form}: ready after {time.monotonic() - begin:.1f} s")
            for runtime in chosen.values():
                if runtime.name not in places or (form.profile == "fused" and not runtime.fused):
                    continue
                for outcome in attempts(
                    runtime, places[runtime.name], form, prepared, work / "results", again=again
                ):
                    _say_outcome(outcome)
                    outcomes.append(outcome)
    wrong = _check_pages(chosen, places, work) if pages else {}
    return _data(chosen, outcomes, obstacles, skipped) | {"wrong_pages": wrong}


def _check_pages(
    runtimes: Mapping[str, Runtime], places: dict[str, Path], work: Path
) -> dict[str, str]:
    """What is wrong with the lines on the pages of Python's runtimes; tests run those of Node's."""
    case = prepare(find_programs()["tiny"], Form(), work)
    wrong: dict[str, str] = {}
    for name, place in places.items():
        if not runtimes[name].is_node:
            words = check_page(runtimes[name].page, place, case)
            _say(f"{name}: its page {words or 'runs as it stands there'}")
            wrong |= {name: words} if words else {}
    return wrong


def _data(
    runtimes: Mapping[str, Runtime],
    outcomes: list[Outcome],
    obstacles: dict[str, str],
    skipped: dict[str, str],
) -> dict[str, Any]:
    return {
        "machine": machine(),
        "runtimes": {
            name: {
                "title": runtime.title,
                "packages": list(runtime.packages),
                "fused": runtime.fused,
                "reasons": {
                    reason.key: {"because": reason.because, "instead": reason.instead}
                    for reason in runtime.reasons
                },
            }
            for name, runtime in runtimes.items()
        },
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "not_set_up": obstacles,
        "skipped": skipped,
        "wrong_pages": {},
    }


def _say_outcome(outcome: Outcome) -> None:
    form = f", {outcome.form}" if outcome.form else ""
    text = f"  {outcome.runtime}{form}: {outcome.verdict}"
    if outcome.difference is not None:
        text += f", difference {outcome.difference:.2g}"
    if outcome.seconds is not None:
        text += f", {outcome.seconds * 1e3:.2f} ms"
    if outcome.load_seconds is not None:
        text += f", loaded in {outcome.load_seconds:.1f} s"
    if outcome.error:
        text += f"\n    [{outcome.reason or '?'}] {outcome.error[:600]}"
    _say(text)


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
