"""Reporting of errors on the command line, in one line and without a traceback."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from catalog.errors import CatalogError

TRACEBACK = "CALVE_TRACEBACK"
"""The environment variable that enables tracebacks of unexpected errors."""

_LONGEST = 2_000
"""The maximum number of characters shown of an unexpected error."""


class ReportingGroup(click.Group):
    """A group of commands that report errors as `ErrorClass: message` on stderr and exit with code 1.

    Args:
        commands_by_name: The module in `catalog.cli` and the function of each command. A command is imported when it
            runs, because the modules of all commands take longer to import than most commands to run.
    """

    def __init__(self, *arguments: Any, commands_by_name: Mapping[str, str], **options: Any) -> None:
        """Set the commands."""
        super().__init__(*arguments, **options)
        self._commands_by_name = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted(self._commands_by_name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._commands_by_name:
            return None
        module, _, function = self._commands_by_name[cmd_name].partition(":")
        # Collections find no garbage in modules, and take a fifth of the time of their import.
        gc.disable()
        try:
            command: click.Command = getattr(import_module(f"catalog.cli.{module}"), function)
        finally:
            gc.enable()
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text; commands are not imported."""
        names = [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            result = super().invoke(ctx)
            # Flush here: writing the rest of the buffer may raise BrokenPipeError, too.
            sys.stdout.flush()
        except BrokenPipeError:
            end_without_reader()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            report(error)
            sys.exit(1)
        return result


def report(error: Exception) -> None:
    """Print an error on stderr, in one line unless its message has several."""
    if isinstance(error, CatalogError):
        # Imported late, because commands without a catalog do not need it.
        from catalog.catalog.suggestions import described

        click.echo(printable(described(error)), err=True)
        return
    if os.environ.get(TRACEBACK):
        raise error
    lines = str(error).strip().splitlines()
    message = printable(lines[0])[:_LONGEST] if lines else "no message"
    hint = "" if isinstance(error, OSError) else f"; set {TRACEBACK}=1 to see where this comes from"
    click.echo(f"{type(error).__name__}: {message}{hint}", err=True)


def printable(text: str) -> str:
    """Return a string that every terminal's encoding accepts."""
    return text.encode("utf-8", "backslashreplace").decode()


def end_without_reader() -> None:
    """Exit quietly when the reader of the output, for instance `head`, has closed the pipe."""
    # Python flushes stdout at exit, and would report the closed pipe again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
