"""The ``relaxish`` command: tune, compile, run, bench, opt, db, lab, report, dashboard, info.

Every problem with the input ends in one line on standard error and a non-zero exit status: 2 for a wrong command line,
1 for everything else. ``RELAXISH_TRACEBACK=1`` shows where it came from.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from .. import __version__
from ..support import config
from ..support.errors import RelaxishError

_COMMANDS = {
    "tune": "Search for fast schedules of a model's kernels by measuring on this machine.",
    "compile": "Compile a model to a shared object with weights and manifest.",
    "run": "Run a compiled or source model on given or random inputs.",
    "bench": "Time a model against torch and ONNX Runtime in one table.",
    "opt": "Run passes over a program and print the result.",
    "db": "Look into and tidy a tuning database.",
    "lab": "Record spaces of schedules, and compare searches on them.",
    "report": "Write the HTML report of a tuning run.",
    "dashboard": "Show tuning runs and a cluster on a local page, live.",
    "info": "Show versions, the machine, targets and settings.",
    "demo": "Import a ResNet-50, tune it and compare it with ONNX Runtime.",
}


class _LazyGroup(click.Group):
    """Imports a command's file only when that command is asked for, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name}_command", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="relaxish")
def cli() -> None:
    """Compile and tune deep-learning models."""


def describe_error(err: BaseException) -> str:
    """One line for a person."""
    if isinstance(err, OSError) and err.strerror:
        return f"{err.filename}: {err.strerror}" if err.filename else err.strerror
    text = " ".join(str(err).split()) or type(err).__name__
    if isinstance(err, RelaxishError | ValueError | TypeError | click.ClickException):
        return text
    return f"{type(err).__name__}: {text}"


def main(args: Sequence[str] | None = None) -> Any:
    """Run the command line; exits the process with its status."""
    if not config.TRACEBACK.value and not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        cli.main(args=list(args) if args is not None else None, standalone_mode=False)
    except click.exceptions.Abort:
        _fail("interrupted", 130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except click.exceptions.Exit as err:
        sys.exit(err.exit_code)
    except click.exceptions.NoArgsIsHelpError as err:
        click.echo(err.format_message())
        sys.exit(0)
    except click.UsageError as err:
        hint = f" (try '{err.ctx.command_path} --help')" if err.ctx is not None else ""
        _fail(err.format_message() + hint, 2)
    except click.ClickException as err:
        _fail(err.format_message(), err.exit_code)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as err:
        if config.TRACEBACK.value:
            raise
        _fail(describe_error(err), 1)
    sys.exit(0)


def _fail(message: str, status: int) -> None:
    click.echo(f"error: {message}", err=True)
    sys.exit(status)
