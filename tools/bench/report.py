"""What was measured, as data, as a table for a terminal, and as the tables of a page."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sexpgpu.tools.bench.expectations import expectations
from sexpgpu.tools.bench.rounds import CLIENTS, Measured, middle

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def as_data(all_found: Sequence[Measured]) -> dict[str, Any]:
    """Everything, medians of the rounds."""
    return {
        "machine": _machine(),
        "models": {found.exported.model.name: _model(found) for found in all_found},
        "ratios": [
            {
                "model": made.model,
                "what": made.what,
                "value": round(made.value, 3),
                "bound": made.bound,
                "holds": made.holds,
            }
            for found in all_found
            for made in expectations(found)
        ],
    }


def _machine() -> dict[str, Any]:
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
        "onnxruntime": _runtime_version(),
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
    machine = data["machine"]
    parts = [
        f"{machine['date']}: {machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
        f"Python {machine['python']}, ONNX Runtime {machine['onnxruntime']}; "
        f"load {machine['load_at_end']} at the end."
    ]
    for name, model in data["models"].items():
        parts.append(_model_table(name, model))
    rows = [
        [
            ratio["model"],
            ratio["what"],
            f"{ratio['value']:.2f}",
            ratio["bound"],
            "yes" if ratio["holds"] else "**no**",
        ]
        for ratio in data["ratios"]
    ]
    parts.append(_table(["model", "ratio", "measured", "expected", "holds"], rows))
    return "\n\n".join(parts) + "\n"


def _model_table(name: str, model: dict[str, Any]) -> str:
    head = (
        f"**{name}**: {_bytes(model['weight_bytes'])} of weights, calls of {model['call_bytes']:,} "
        f"and answers of {model['answer_bytes']:,} bytes; an echo of the same bytes takes "
        f"{model['echo_us']:,.1f} µs."
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
        row += [_bytes(memory) if memory else "", f"{start:.2f}" if start else ""]
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
    return head + "\n\n" + _table(columns, rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    every = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in every
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def write_into(page: Path, text: str) -> None:
    """Puts the tables between the page's two marks.  Raises ValueError where it has none."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the tables: {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
