"""What came of the runs, as Markdown."""

from __future__ import annotations

import re
from typing import Any

from sexpgpu.tools.bench.report import machine_text, table

BEGIN, END = "<!-- portability: begin -->", "<!-- portability: end -->"


def tables(data: dict[str, Any]) -> str:
    """Where it was run, a table for each profile, and the reasons that its cells name."""
    packages = sorted({p for about in data["runtimes"].values() for p in about["packages"]})
    versions = ", ".join(re.sub("==|(?<=.)@", " ", package) for package in packages)
    parts = [machine_text(data["machine"], versions)]
    used: dict[tuple[str, str], int] = {}
    for profile in ("portable", "fused"):
        outcomes = [o for o in data["outcomes"] if o["profile"] == profile]
        if outcomes:
            parts.append(f"**{profile}**\n\n" + _table(data, outcomes, used))
    if used:
        parts.append("\n".join(_reason(data, *key, number) for key, number in used.items()))
    for name, why in data["not_set_up"].items():
        parts.append(f"{data['runtimes'][name]['title']} was not set up: {why}.")
    for name, why in data["skipped"].items():
        parts.append(f"`{name}` was not exported: {why}.")
    for name, why in data["wrong_pages"].items():
        parts.append(f"The lines on the page of {data['runtimes'][name]['title']} fail: {why}.")
    return "\n\n".join(parts) + "\n"


def _table(
    data: dict[str, Any], outcomes: list[dict[str, Any]], used: dict[tuple[str, str], int]
) -> str:
    runtimes = [name for name in data["runtimes"] if any(o["runtime"] == name for o in outcomes)]
    examples = list(dict.fromkeys(o["example"] for o in outcomes))
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for outcome in outcomes:
        cells.setdefault((outcome["example"], outcome["runtime"]), []).append(outcome)
    rows = [
        [example, *(_cell(cells.get((example, name), []), used) for name in runtimes)]
        for example in examples
    ]
    titles = [data["runtimes"][name]["title"] for name in runtimes]
    return table(["example", *titles], rows)


def _cell(outcomes: list[dict[str, Any]], used: dict[tuple[str, str], int]) -> str:
    """What the export gives, and where it fails, why, and what a form that gets round it gives."""
    parts: list[str] = []
    for outcome in outcomes:
        form = f"{outcome['form']}: " if outcome["form"] else ""
        if outcome["verdict"] == "agrees":
            parts.append(f"{form}{outcome['difference']:.0e}, {_time(outcome['seconds'])}")
            continue
        key = (outcome["runtime"], outcome["reason"])
        note = f"[{used.setdefault(key, len(used) + 1)}]" if outcome["reason"] else "?"
        parts.append(f"{form}**{outcome['verdict']}** {note}")
    return "; ".join(parts) or "not run"


def _time(seconds: float) -> str:
    """Three figures, with their unit."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{seconds * 1e3:.3g} ms"


def _reason(data: dict[str, Any], runtime: str, key: str, number: int) -> str:
    about = data["runtimes"][runtime]
    reason = about["reasons"][key]
    text = f"{number}. {about['title']}: {reason['because']}"
    return f"{text} {reason['instead']}" if reason["instead"] else text
