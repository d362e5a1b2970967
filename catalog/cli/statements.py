"""`calve sql`: runs statements from the command line, from a file, from standard input, or interactively."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from catalog.model.identifiers import DEFAULT_DATABASE

if TYPE_CHECKING:
    from catalog.errors import CatalogError
    from catalog.statements.model import Statement
    from catalog.statements.results import Outcome, StatementResult
    from catalog.statements.session import Session

FORMATS = ("csv", "json", "parquet")
"""The formats of files with the rows of a SELECT; `json` has one object a line."""

_SHOWN = 100
"""The number of characters of a statement's line that are shown around an error."""


@click.command("sql")
@click.argument("statements", required=False)
@click.option("--file", "file", type=click.File(encoding="utf-8"), help="Read the statements from a file; - for stdin.")
@click.option(
    "--database", default=DEFAULT_DATABASE, show_default=True, help="The database of table names without one."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each statement.")
@click.option(
    "--long", "is_long", is_flag=True, help="All columns: row counts, sizes and files of SHOW PARTITIONS, too."
)
@click.option("--keep-going", is_flag=True, help="Continue after a statement that fails.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
    help="Let each statement wait for operations that hold its table, up to this time.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the rows of the SELECT to this file instead of printing them.",
)
@click.option(
    "--format", "output_format", type=click.Choice(FORMATS), help="Of the file; by default, its extension says so."
)
def sql(
    statements: str | None,
    file: TextIO | None,
    database: str,
    as_json: bool,
    is_long: bool,
    keep_going: bool,
    wait: float,
    output: Path | None,
    output_format: str | None,
) -> None:
    """Run SQL STATEMENTS, separated by semicolons; docs/statements.md lists them.

    Without statements, on a terminal, they are read one after the other, with history and completion.

    Statements that use only the catalog run at once; the first that needs Spark starts it in this process. Exits with 0
    if all statements succeeded.
    """
    patience = timedelta(seconds=wait)
    if statements is None and file is None and output is None and not as_json and sys.stdin.isatty():
        from catalog.cli.shell import run_shell

        run_shell(database=database, is_long=is_long, wait=patience)
        return
    if (statements is None) == (file is None):
        raise click.UsageError("give either the statements, or --file with the file that contains them")
    script = (statements if file is None else _read(file)) or ""
    if output is not None:
        from catalog.cli.exporting import export

        row_count = export(script, output, output_format, database=database, wait=patience)
        click.echo(f"{row_count:,} row(s) in {output}", err=True)
        return
    if output_format is not None:
        raise click.UsageError("--format is that of a file; add --output FILE")
    is_good = run(script, database=database, as_json=as_json, is_long=is_long, keep_going=keep_going, wait=patience)
    sys.exit(0 if is_good else 1)


def _read(file: TextIO) -> str:
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file.name} is not in the encoding UTF-8: {error}") from None


def run(
    script: str,
    *,
    database: str,
    as_json: bool,
    is_long: bool,
    keep_going: bool,
    wait: timedelta = timedelta(),
) -> bool:
    """Run a script, printing each result as it arrives; return whether all statements succeeded."""
    is_good = True
    with open_session(database, wait) as session:
        for outcome in session.run(script, keep_going=keep_going, streams=not as_json):
            if as_json:
                click.echo(outcome.as_json())
                error = outcome.error
            else:
                error = show(outcome, is_long=is_long)
            is_good = is_good and error is None
            sys.stdout.flush()
            if error is not None and not keep_going:
                break
    return is_good


@contextmanager
def open_session(database: str, wait: timedelta) -> Iterator[Session]:
    """Yield a session on the catalog, without the restrictions for what others send."""
    # Imported late, because other commands do not need these modules.
    from catalog.catalog import Catalog
    from catalog.settings.places import allow_everything_by_default
    from catalog.statements.session import Session

    allow_everything_by_default()
    with (
        Catalog.open() as catalog,
        Session(
            catalog,
            database=database,
            requested_by="calve sql",
            wait=wait,
            on_wait=lambda message: click.echo(message, err=True),
        ) as session,
    ):
        yield session


def show(
    outcome: Outcome, *, is_long: bool, show_lines: Callable[[Iterable[str]], object] | None = None
) -> CatalogError | None:
    """Print the text form of an outcome; return the error that was printed.

    Args:
        show_lines: Prints the lines of a result; by default one after the other.
    """
    from catalog.catalog.suggestions import described
    from catalog.errors import CatalogError
    from catalog.statements.results import as_text, stream_as_text

    error = outcome.error
    if outcome.answer is not None:
        (show_lines or _echo)(as_text(outcome.answer, is_long=is_long))
    elif outcome.stream is not None:
        try:
            (show_lines or _echo)(stream_as_text(outcome.stream))
        except CatalogError as failure:
            # What was read before it is printed already.
            sys.stdout.flush()
            error = failure
    if error is not None:
        click.echo(described(error), err=True)
        for line in pointer(outcome.statement.text, error.position):
            click.echo(line, err=True)
    return error


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def execute(statement: Statement) -> StatementResult:
    """Run a statement that a command consists of."""
    from catalog.catalog import Catalog
    from catalog.statements.session import Session

    with Catalog.open() as catalog, Session(catalog, requested_by="calve") as session:
        return session.run_statement(statement)


def pointer(statement: str, position: int | None) -> list[str]:
    """Return the line of a statement that contains a position, and a mark below it; nothing without a position."""
    if position is None:
        return []
    start = statement.rfind("\n", 0, position) + 1
    end = statement.find("\n", position)
    line = statement[start:] if end < 0 else statement[start:end]
    column = position - start
    cut = max(0, min(column - _SHOWN // 2, len(line) - _SHOWN))
    # Keep tabs above the mark as tabs, because their width depends on the terminal.
    before = "".join("\t" if character == "\t" else " " for character in line[cut:column])
    left, right = "…" if cut else "  ", "…" if cut + _SHOWN < len(line) else ""
    return [f"{left:>2}{line[cut : cut + _SHOWN].rstrip()}{right}", f"  {before}^"]
