"""What was measured, as data, as a table for a terminal, and as the tables of a page."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sexpgpu.tools.bench.expectations import Expectation, expectations
from sexpgpu.tools.bench.rounds import CLIENTS, Measured, middle

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def as_data(all_found: Sequence[Measured]) -> dict[str, Any]:
    """Everything, medians of the rounds."""
    return {
        "machine": machine(onnxruntime=_runtime_version()),
        "models": {found.exported.model.name: _model(found) for found in all_found},
        "ratios": ratio_data(made for found in all_found for made in expectations(found)),
    }


def machine(**versions: str) -> dict[str, Any]:
    """Where and when it was measured, with versions of packages by name."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **versions,
        "load_at_end": round(os.getloadavg()[0], 2),
    }


def _runtime_version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def _model(found: Measured) -> dict[str, Any]:
    exported = found.exported
    return {
        "weight_bytes": exported.weight_bytes,
        "call_bytes": exported.model.call_bytes,
        "answer_bytes": exported.model.answer_bytes,
        "echo_us": round(middle(found.echo_us), 2),
        "loads": [
            {
                "who": who,
                "clients": clients,
                "p50_us": round(middle([load.p50_us for load in loads]), 2),
                "p99_us": round(middle([load.p99_us for load in loads]), 2),
                "calls_per_second": round(middle([load.rate for load in loads]), 1),
                "errors": sum(load.errors for load in loads),
            }
            for (who, clients), loads in found.loads.items()
        ],
        "crowd": {
            name: {
                "p50_us": round(middle([load.p50_us for load in loads]), 1),
                "p99_us": round(middle([load.p99_us for load in loads]), 1),
                "errors": sum(load.errors for load in loads),
            }
            for name, loads in found.crowd.items()
        },
        "start_seconds": {who: round(middle(values), 3) for who, values in found.seconds.items()},
        "resident_bytes": found.bytes,
        "unavailable": found.unavailable,
    }


def tables(data: dict[str, Any]) -> str:
    """The machine, a table for each model, and the ratios, in Markdown."""
    made = data["machine"]
    parts = [machine_text(made, f"ONNX Runtime {made['onnxruntime']}")]
    for name, model in data["models"].items():
        parts.append(_model_table(name, model))
    parts.append(ratio_table(data["ratios"]))
    return "\n\n".join(parts) + "\n"


def machine_text(machine: dict[str, Any], versions: str) -> str:
    """A sentence on where it was measured."""
    return (
        f"{machine['date']}: {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"Python {machine['python']}, {versions}; load {machine['load_at_end']} at the end."
    )


def ratio_data(made: Iterable[Expectation]) -> list[dict[str, Any]]:
    """Expectations as data."""
    return [
        {
            "model": each.model,
            "what": each.what,
            "value": round(each.value, 3),
            "bound": each.bound,
            "holds": each.holds,
        }
        for each in made
    ]


def ratio_table(ratios: Iterable[dict[str, Any]]) -> str:
    """What was expected, and whether it holds."""
    rows = [
        [
            ratio["model"],
            ratio["what"],
            # By how little it misses is to be seen.
            f"{ratio['value']:.{2 if ratio['holds'] else 3}f}",
            ratio["bound"],
            "yes" if ratio["holds"] else "**no**",
        ]
        for ratio in ratios
    ]
    return table(["model", "ratio", "measured", "expected", "holds"], rows)


def _model_table(name: str, model: dict[str, Any]) -> str:
    head = (
        f"**{name}**: {size_text(model['weight_bytes'])} of weights, "
        f"calls of {model['call_bytes']:,} and answers of {model['answer_bytes']:,} bytes; "
        f"an echo of the same bytes takes {model['echo_us']:,.1f} µs."
    )
    rows = []
    loads: dict[str, dict[int, Any]] = {}
    for load in model["loads"]:
        loads.setdefault(load["who"], {})[load["clients"]] = load
    names = {"in process": "bare", "server": "server"}
    for who, by_clients in loads.items():
        if who.startswith("server beside"):
            continue
        row = [who]
        for clients in CLIENTS:
            load = by_clients.get(clients)
            row += (
                [f"{load['p50_us']:,.0f} / {load['p99_us']:,.0f}"] if load and clients < 64 else []
            )
            row += [f"{load['calls_per_second']:,.0f}" if load else ""] if clients > 1 else []
        key = names.get(who, who)
        memory, start = model["resident_bytes"].get(key), model["start_seconds"].get(key)
        row += [size_text(memory) if memory else "", f"{start:.2f}" if start else ""]
        rows.append(row)
    rows += [[who, why, "", "", "", "", ""] for who, why in model["unavailable"].items()]
    columns = [
        "who",
        "1: p50 / p99 µs",
        "8: p50 / p99 µs",
        "8: calls/s",
        "64: calls/s",
        "memory",
        "start s",
    ]
    return head + "\n\n" + table(columns, rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its columns aligned."""
    every = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in every
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def size_text(count: int) -> str:
    """`17 KiB`"""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def write_into(page: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Puts the tables between two marks of the page.  Raises ValueError where it has none."""
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for the tables: {begin} … {end}")
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")
