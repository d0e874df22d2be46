"""`sexpgpu check`: compile a program and show what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sexpgpu.tools.cli.options import (
    human_bytes,
    json_option,
    program_argument,
    program_options,
    read_knobs,
    tensor_data,
    tensor_lines,
)

if TYPE_CHECKING:
    from sexpgpu.export.language.report import Report


@click.command(name="check")
@program_argument
@program_options
@json_option
def command(file: Path, variant: str | None, knobs: tuple[str, ...], as_json: bool) -> None:
    """Compile FILE.sx; show its inputs, outputs and parameters, and whether it runs alone."""
    from sexpgpu.export.language.report import report_on

    report = report_on(file, variant, read_knobs(knobs))
    if as_json:
        click.echo(json.dumps(_data(report), indent=2))
    else:
        click.echo("\n".join(_lines(report)))


def _data(report: Report) -> dict[str, Any]:
    program = report.program
    data: dict[str, Any] = {
        "file": str(program.path),
        "slug": program.slug,
        "variant": program.variant,
        "knobs": report.knob_values(),
        "precision": program.precision,
        "inputs": tensor_data(report.inputs),
        "outputs": tensor_data(report.outputs),
        "parameters": [
            {
                "path": path,
                "shape": [d for d in parameter.type.shape if isinstance(d, int)],
                "dtype": parameter.type.dtype.value,
                "elements": parameter.elements,
                "init": None if parameter.load else parameter.init.show_value(),
                "load": parameter.load,
                "key": (parameter.key or path) if parameter.load else None,
                "frozen": parameter.frozen,
            }
            for path, parameter in report.parameters.items()
        ],
        "parameter_count": report.parameter_count,
        "runs_alone": report.alone is not None,
        "nodes": len(report.alone.graph.nodes) if report.alone else None,
        "trains": report.trains,
        "metrics": report.metrics,
    }
    if report.obstacle is not None:
        data["why_not_alone"] = report.obstacle.as_data()
    if report.independence is not None:
        verdict = report.independence
        data["batch_independent"] = verdict.independent
        if not verdict.independent:
            node = verdict.node
            data["why_not_independent"] = {
                "reason": verdict.reason,
                "operation": node.operation.name if node else None,
                "source": str(node.position) if node and node.position else None,
            }
    return data


def _lines(report: Report) -> list[str]:
    program = report.program
    title = str(program.path) + (f", variant {program.variant}" if program.variant else "")
    count = len(report.parameters)
    lines = [
        f"{title}: {count:,} parameter{'' if count == 1 else 's'}, "
        f"{report.parameter_count:,} numbers, {human_bytes(report.parameter_bytes)}"
    ]
    if program.knobs:
        shown = ", ".join(f"{name} {value}" for name, value in report.knobs_shown().items())
        lines.append(f"  knobs   {shown}")
    lines += tensor_lines("inputs", report.inputs)
    lines += tensor_lines("outputs", report.outputs)
    if report.alone is None:
        assert report.obstacle is not None
        lines.append("  alone   no:")
        lines += ["    " + line for line in report.obstacle.render().split("\n")]
    else:
        nodes = len(report.alone.graph.nodes)
        lines.append(f"  alone   yes, {nodes:,} operation{'' if nodes == 1 else 's'}")
    if report.independence is not None:
        verdict = report.independence
        lines.append(
            "  batch   records pass through independently"
            if verdict.independent
            else f"  batch   records are not independent: {verdict.reason}"
        )
    if report.trains:
        lines.append("  trains  " + ", ".join(report.metrics))
    if report.parameters:
        lines.append("  parameters")
        lines += report.tree()
    return lines
