"""`sexpgpu doctor`: what the machine can run, and why not the rest."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from sexpgpu.tools.cli.options import json_option


@click.command(name="doctor")
@json_option
def command(as_json: bool) -> None:
    """Show what this machine can run models on, and what is missing for the rest."""
    from sexpgpu.serve.doctor import describe, diagnose

    found = diagnose()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo("\n".join(describe(found)))
