"""`sexpgpu explain`: what an error code means."""

from __future__ import annotations

import difflib
import textwrap

import click

from sexpgpu.schemas.codes import CODES
from sexpgpu.schemas.errors import SexpgpuError


@click.command(name="explain")
@click.argument("code")
def command(code: str) -> None:
    """Say what an error CODE means and how to mend it."""
    name = code.upper().strip("[]")
    if name not in CODES:
        close = difflib.get_close_matches(name, CODES, 3)
        raise SexpgpuError(
            "E-USAGE-001",
            f"there is no error code `{code}`",
            help="did you mean " + ", ".join(close) + "?" if close else None,
            exit_code=2,
        )
    explanation = CODES[name]
    click.echo(f"{name}: {explanation.title}\n")
    click.echo(textwrap.fill(explanation.text, 80))
