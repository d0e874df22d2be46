"""The command `sexpgpu`: its subcommands are imported when they are called, not before."""

from __future__ import annotations

import importlib
import json
import keyword
import os
import sys
from collections.abc import Sequence

import click

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.cli.streams import forget_unwritten, prepare, say

#: Subcommand, and what it does in a line; the module beside this one has its name (`import_` where
#: Python has it for itself).
COMMANDS = {
    "call": "Call a model that is served, once, from the shell.",
    "check": "Compile a program; show its inputs, outputs and parameters.",
    "doctor": "Show what this machine can run models on.",
    "evaluate": "Show the evaluation numbers of a checkpoint.",
    "explain": "Say what an error code means and how to mend it.",
    "export": "Write a model and its weights as a portable ONNX artifact.",
    "import": "Write the program of a model of Hugging Face's, or of a GGUF file.",
    "init": "Write a checkpoint of a program's initial weights.",
    "run": "Train a program's model into checkpoints.",
    "serve": "Serve a model behind a Unix socket.",
    "inspect": "Show what a checkpoint, an export or an ONNX file holds.",
}


class _LazyGroup(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        file = f"{name}_" if keyword.iskeyword(name) else name
        module = importlib.import_module(f"sexpgpu.tools.cli.{file}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if arguments and arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
            raise click.UsageError(_unknown(arguments[0]))
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def _unknown(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, 1)
    return f"there is no command `{name}`" + (f"; did you mean `{close[0]}`?" if close else "")


def _show_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("sexpgpu")
    except PackageNotFoundError:
        number = "without a version: it runs from a checkout and is not installed"
    click.echo(f"sexpgpu {number}")
    context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """From a page of S-expressions to a model that other programs can call."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; exits 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare()
    try:
        status = cli.main(given, prog_name="sexpgpu", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except SexpgpuError as error:
        fail(error, as_json="--json" in given)
    except click.UsageError as error:
        usage = error.ctx.get_usage() if error.ctx else None
        fail(
            SexpgpuError("E-USAGE-001", _sentence(error.format_message()), help=usage, exit_code=2),
            as_json="--json" in given,
        )
    except click.ClickException as error:
        fail(SexpgpuError("E-FILE-001", _sentence(error.format_message())), as_json=False)
    except (KeyboardInterrupt, click.Abort):
        say("sexpgpu: stopped by SIGINT", err=True)
        sys.exit(130)
    except Exception as error:
        if os.environ.get("SEXPGPU_DEBUG"):
            raise
        known = _refused(error) if isinstance(error, OSError) else _internal(error)
        fail(known, as_json="--json" in given)
    finally:
        forget_unwritten()


def fail(error: SexpgpuError, *, as_json: bool) -> None:
    """Shows an error, on stdout as data too where a program reads it, and exits."""
    say(error.render(), err=True)
    if as_json:
        say(json.dumps({"error": error.as_data()}, indent=2))
    sys.exit(error.exit_code)


def _sentence(message: str) -> str:
    """click's message as ours: no capital, no full stop."""
    message = message.strip().rstrip(".")
    return message[:1].lower() + message[1:]


def _refused(error: OSError) -> SexpgpuError:
    """What the system does not do: a disk that is full, a file that may not be read."""
    place = forget_unwritten() or error.filename
    return SexpgpuError(
        "E-FILE-001",
        f"a file cannot be read or written: {error.strerror or error}",
        place=None if place is None else str(place),
    )


def _internal(error: Exception) -> SexpgpuError:
    return SexpgpuError(
        "E-INTERNAL-001",
        f"something went wrong inside sexpgpu: {type(error).__name__}: {error}",
        help="please report it, with the program or file; SEXPGPU_DEBUG=1 shows the traceback",
    )
