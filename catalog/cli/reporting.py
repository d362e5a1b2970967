"""Errors on the command line: one line each, whatever went wrong, and no traceback."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from catalog.errors import CatalogError

TRACEBACK = "CALVE_TRACEBACK"
"""Environment variable that asks for the traceback of an unexpected error."""

_LONGEST = 2_000
"""Characters of an unexpected error that are shown."""


class ReportingGroup(click.Group):
    """Commands that report an error as `ErrorClass: message` on stderr and end with code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            result = super().invoke(ctx)
            # What is still buffered may find the reader of our output gone, too.
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
    """Print an error on stderr, in one line unless its message has more."""
    if isinstance(error, CatalogError):
        click.echo(f"{type(error).__name__}: {printable(str(error))}", err=True)
        return
    if os.environ.get(TRACEBACK):
        raise error
    lines = str(error).strip().splitlines()
    message = printable(lines[0])[:_LONGEST] if lines else "no message"
    hint = "" if isinstance(error, OSError) else f"; set {TRACEBACK}=1 to see where this comes from"
    click.echo(f"{type(error).__name__}: {message}{hint}", err=True)


def printable(text: str) -> str:
    """Return a text that every terminal's encoding takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def end_without_reader() -> None:
    """End quietly when the reader of our output, for instance `head`, has seen enough."""
    # At its end, Python flushes what is left, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
