"""`calve sql`: runs statements from the command line, from a file, or from standard input."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

import click

from catalog.model.identifiers import DEFAULT_DATABASE

if TYPE_CHECKING:
    from catalog.statements.model import Statement
    from catalog.statements.results import StatementResult

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
def sql(
    statements: str | None,
    file: TextIO | None,
    database: str,
    as_json: bool,
    is_long: bool,
    keep_going: bool,
    wait: float,
) -> None:
    """Run SQL STATEMENTS, separated by semicolons; docs/statements.md lists them.

    Statements that use only the catalog run at once; the first that needs Spark starts it in this process. Exits with 0
    if all statements succeeded.
    """
    if (statements is None) == (file is None):
        raise click.UsageError("give either the statements, or --file with the file that contains them")
    script = statements if file is None else _read(file)
    is_good = run(
        script or "",
        database=database,
        as_json=as_json,
        is_long=is_long,
        keep_going=keep_going,
        wait=timedelta(seconds=wait),
    )
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
    # Imported late, because other commands do not need these modules.
    from catalog.catalog import Catalog
    from catalog.settings.places import allow_everything_by_default
    from catalog.statements.results import as_text
    from catalog.statements.session import Session

    is_good = True
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
        for outcome in session.run(script, keep_going=keep_going):
            is_good = is_good and outcome.error is None
            if as_json:
                click.echo(outcome.as_json())
            elif outcome.error is not None:
                click.echo(f"{type(outcome.error).__name__}: {outcome.error}", err=True)
                for line in pointer(outcome.statement.text, outcome.error.position):
                    click.echo(line, err=True)
            elif outcome.answer is not None:
                for line in as_text(outcome.answer, is_long=is_long):
                    click.echo(line)
            sys.stdout.flush()
    return is_good


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
