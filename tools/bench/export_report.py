"""Two exporters compared: as expected ratios, and as the tables of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from sexpgpu.tools.bench.expectations import Expectation
from sexpgpu.tools.bench.export_models import BATCHES, MODELS
from sexpgpu.tools.bench.export_turns import EXPORTERS, OURS, THEIRS
from sexpgpu.tools.bench.report import (
    machine,
    machine_text,
    ratio_data,
    ratio_table,
    size_text,
    table,
)
from sexpgpu.tools.bench.rounds import middle

BEGIN, END = "<!-- exporters: begin -->", "<!-- exporters: end -->"

_EXPORT_LIMIT, _BYTES_LIMIT = 0.25, 1.01


def expectations(name: str, model: Mapping[str, Any]) -> Iterator[Expectation]:
    """What is expected of one model's figures; of rounds the median of their ratios."""
    ours, theirs = (model["exporters"][who] for who in (OURS, THEIRS))
    rounds = model["export_rounds"]
    taken = _ratio(rounds[OURS], rounds[THEIRS])
    yield Expectation(name, "export, verified, of torch.onnx's time", taken, _EXPORT_LIMIT)
    for batch in BATCHES:
        runs = model["run_rounds"][str(batch)]
        what = f"run of {batch} record{'s' if batch > 1 else ''}, of torch.onnx's time"
        yield Expectation(name, what, _ratio(runs[OURS], runs[THEIRS]), 1.0)
    share = ours["bytes"] / model["weight_bytes"]
    yield Expectation(name, "bytes on disk, of the weights'", share, _BYTES_LIMIT)
    apart = ours["difference"] / theirs["difference"]
    yield Expectation(name, "difference from f64, of torch.onnx's", apart, 1.0)


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """What slows a round slows both."""
    return middle([a / b for a, b in zip(ours, theirs, strict=True)])


def as_data(models: Mapping[str, dict[str, Any]], threads: int) -> dict[str, Any]:
    """Everything, with the versions that it was measured with."""
    packages = ("torch", "transformers", "onnxscript")
    versions = {name: version(name) for name in packages}
    import onnxruntime

    found = machine(onnxruntime=str(onnxruntime.__version__), threads=str(threads), **versions)
    made = (each for name, model in models.items() for each in expectations(name, model))
    return {"machine": found, "models": dict(models), "ratios": ratio_data(made)}


def tables(data: Mapping[str, Any]) -> str:
    """The machine, a table for each model, and the ratios, in Markdown."""
    made = data["machine"]
    versions = ", ".join(
        f"{title} {made[name]}"
        for title, name in (
            ("PyTorch", "torch"),
            ("transformers", "transformers"),
            ("onnxscript", "onnxscript"),
            ("ONNX Runtime", "onnxruntime"),
        )
    )
    threads = f"{versions} on {made['threads']} thread{'s' if made['threads'] != '1' else ''}"
    parts = [machine_text(made, threads)]
    parts += [_model_table(name, model) for name, model in data["models"].items()]
    parts.append(ratio_table(data["ratios"]))
    return "\n\n".join(parts) + "\n"


def _model_table(name: str, model: Mapping[str, Any]) -> str:
    known = MODELS[name]
    shape = f"a window of {known.knobs['window']}" if "window" in known.knobs else "224 by 224"
    head = f"**{known.title}** (`{known.program}`, {shape}): "
    head += f"{size_text(model['weight_bytes'])} of weights."
    rows = []
    for who in EXPORTERS:
        each = model["exporters"][who]
        row = [who, f"{each['seconds']:.2f}", size_text(each["peak_bytes"])]
        if each["bytes"] is None:
            rows.append(row + [""] * 5)
            continue
        row += [
            f"{each['bytes'] / model['weight_bytes']:.4f}",
            f"{each['nodes']:,}",
            f"{each['difference']:.2e}",
        ]
        rows.append(row + [f"{1e3 * each['run_seconds'][str(batch)]:,.1f}" for batch in BATCHES])
    columns = ["who", "export s", "peak memory", "bytes, of weights", "nodes", "difference"]
    return f"{head}\n\n" + table([*columns, *(f"{batch}: ms a run" for batch in BATCHES)], rows)
