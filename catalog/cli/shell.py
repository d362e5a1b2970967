"""`calve sql` on a terminal: reads statements, with history and completion, and runs them on one warm engine.

A statement runs in a thread of its own, so that Ctrl-C reaches this one, which cancels the statement; the session and
the engine stay. An interrupt in the thread that talks to Spark would leave its connection with half an answer.
"""

from __future__ import annotations

import os
import re
import readline
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from catalog.catalog import Catalog
from catalog.cli.reporting import report
from catalog.cli.statements import open_session, show
from catalog.errors import CatalogError, InvalidLocationError
from catalog.files.credentials import has_credentials
from catalog.model import Table
from catalog.statements.parser import parse_statement
from catalog.statements.results import Outcome
from catalog.statements.session import Session
from catalog.statements.splitting import StatementText, is_complete, split, without_comments

_PROMPT, _MORE = "calve> ", "  ...> "
_MOST_STATEMENTS = 10_000
_POLL_SECONDS = 0.2
_LAST_WORD = re.compile(r"[\w.`]*$")
_WORD = re.compile(r"[^\W\d]\w*")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:/[^'\"`]*", re.IGNORECASE)
_LESS_OPTIONS = "-FRSX"

_KEYWORD = re.compile(r'"([A-Z]{2,})"i')
_WORDS_OF_QUERIES = (
    "AND BETWEEN BY CASE CAST CROSS DISTINCT ELSE END EXISTS FULL GROUP HAVING INNER INTERVAL IS JOIN LEFT LIMIT NOT "
    "ON OR ORDER OUTER OVER RIGHT SELECT THEN UNION WHEN WHERE WITH"
)

_HELP = """Statements end with a semicolon and may have several lines; docs/statements.md lists them.
Tab completes keywords, databases, tables and columns; Ctrl-C cancels a statement; exit, quit or Ctrl-D ends."""


@cache
def keywords() -> tuple[str, ...]:
    """Return the words of statements, in upper case: those of the grammar, and those of queries."""
    grammar = files("catalog.statements").joinpath("grammar.lark").read_text("utf-8")
    return tuple(sorted({*_KEYWORD.findall(grammar), *_WORDS_OF_QUERIES.split()}))


def history_path() -> Path:
    """Return the file with the statements of earlier sessions, in the user's folder for state."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return folder / "calve" / "sql_history"


def run_shell(*, database: str, is_long: bool, wait: timedelta) -> None:
    """Read statements from the terminal, and run them, until the user ends the session."""
    with open_session(database, wait) as session:
        completer = Completer(session)
        _prepare_readline(completer)
        for script in _scripts():
            with suppress(KeyboardInterrupt):
                for statement in split(script):
                    _run(session, statement, is_long=is_long)
            completer.forget()


def _prepare_readline(completer: Completer) -> None:
    path = history_path()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Statements may name what others must not know.
        path.touch(mode=0o600)
        readline.read_history_file(path)
    readline.set_auto_history(False)
    readline.set_history_length(_MOST_STATEMENTS)
    readline.set_completer(completer.complete)
    readline.set_completer_delims(" \t\n()=<>,;'\"")
    is_editline = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")


def _scripts() -> Iterator[str]:
    """Yield what the user enters, each with one or more whole statements."""
    lines: list[str] = []
    while True:
        try:
            line = input(_MORE if lines else _PROMPT)
        except KeyboardInterrupt:
            lines = []
            click.echo()
            continue
        except EOFError:
            click.echo()
            return
        if not lines and line.strip().rstrip(";").lower() in ("exit", "quit"):
            return
        if not lines and line.strip().rstrip(";").lower() == "help":
            click.echo(_HELP)
            continue
        lines.append(line)
        script = "\n".join(lines)
        if is_complete(script):
            _remember(script)
            lines = []
            yield script


def _remember(script: str) -> None:
    """Append statements to the history, in one line and without comments; not those with a password."""
    if _has_password(script):
        return
    entry = " ".join(without_comments(script).split("\n")).strip()
    if entry:
        readline.add_history(entry)
        with suppress(OSError):
            readline.write_history_file(history_path())


def _has_password(script: str) -> bool:
    """Return whether a location in a script has a password, also if a statement is invalid, which the user corrects."""
    if any(has_credentials(address) for address in _ADDRESS.findall(script)):
        return True
    for statement in split(script):
        try:
            parse_statement(statement.text)
        except InvalidLocationError:
            return True
        except CatalogError:
            continue
    return False


def _run(session: Session, statement: StatementText, *, is_long: bool) -> None:
    """Run a statement, and print its result; Ctrl-C cancels it."""
    outcomes, is_cancelled = _outcomes(session, statement)
    for outcome in outcomes:
        if is_cancelled and (isinstance(outcome, BaseException) or outcome.error is not None):
            click.echo("cancelled", err=True)
        elif isinstance(outcome, Exception):
            report(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            _show(session, outcome, is_long=is_long)


def _outcomes(session: Session, statement: StatementText) -> tuple[list[Outcome | BaseException], bool]:
    """Run a statement in another thread; return its outcome or error, and whether Ctrl-C has cancelled it."""
    outcomes: list[Outcome | BaseException] = []

    def work() -> None:
        try:
            outcomes.extend(session.run(statement.text, streams=True))
        except BaseException as error:
            outcomes.append(error)
        finally:
            ended.set()

    ended, interrupted, is_told = threading.Event(), threading.Event(), False
    # Not as an exception, which could come between any two lines.
    before = signal.signal(signal.SIGINT, lambda *_arguments: interrupted.set())
    try:
        threading.Thread(target=work, name="statement", daemon=True).start()
        while not ended.wait(_POLL_SECONDS):
            if not interrupted.is_set():
                continue
            if not is_told:
                click.echo("cancelling …", err=True)
            is_told = True
            # Again and again, because the statement may begin further work.
            session.cancel()
    finally:
        signal.signal(signal.SIGINT, before)
    return outcomes, interrupted.is_set()


def _show(session: Session, outcome: Outcome, *, is_long: bool) -> None:
    try:
        show(outcome, is_long=is_long, show_lines=show_in_pages)
    except KeyboardInterrupt:
        session.cancel()
        click.echo("cancelled", err=True)
    except BrokenPipeError:
        # The user has left the pager.
        session.cancel()
    finally:
        rows: Any = None if outcome.stream is None else outcome.stream.rows
        if rows is not None:
            rows.close()


def show_in_pages(lines: Iterable[str]) -> None:
    """Print lines, in a pager if they do not fit on the screen."""
    remaining = iter(lines)
    first = list(islice(remaining, max(1, shutil.get_terminal_size().lines - 1)))
    following = next(remaining, None)
    if following is None:
        for line in first:
            click.echo(line)
        return
    os.environ.setdefault("LESS", _LESS_OPTIONS)
    click.echo_via_pager(f"{line}\n" for line in chain(first, [following], remaining))


class Completer:
    """Completes words of statements: keywords, databases, tables, and the columns of tables that a statement names."""

    def __init__(self, session: Session) -> None:
        """Complete names as a session resolves them."""
        self._session = session
        self._found: list[str] = []
        self._databases: list[str] | None = None
        self._tables: dict[str, list[Table]] = {}

    def forget(self) -> None:
        """Look names up again, because a statement may have changed them."""
        self._databases, self._tables = None, {}

    def complete(self, word: str, number: int) -> str | None:
        """Return a completion of a word, for readline: each call returns the one of the next number."""
        if number == 0:
            self._found = self.candidates(readline.get_line_buffer()[: readline.get_endidx()])
        return self._found[number] if number < len(self._found) else None

    def candidates(self, text: str) -> list[str]:
        """Return the completions of the last word of a text."""
        match = _LAST_WORD.search(text)
        word = match.group() if match else ""
        qualifier, dot, start = word.rpartition(".")
        names: set[str] = set()
        # Without the catalog there are still keywords.
        with suppress(CatalogError):
            names.update(self._names(qualifier.lower(), text) if dot else self._all_names(text))
        found = sorted(f"{qualifier}{dot}{name}" for name in names if name.startswith(start.lower()))
        if dot or not start:
            return found
        words = [keyword for keyword in keywords() if keyword.startswith(start.upper())]
        return [*found, *(word.lower() if start.islower() else word for word in words if word.lower() not in names)]

    def _names(self, qualifier: str, text: str) -> Iterator[str]:
        """Yield the tables of a database, and the columns of a table, its alias or `database.table`."""
        if qualifier in self._all_databases():
            yield from (table.name for table in self._tables_of(qualifier))
        tables = [table for table in self._named(text) if qualifier in (table.name, table.full_name)]
        if not tables:
            pattern = rf"([\w.]+)\s+(?:as\s+)?{re.escape(qualifier)}\b"
            aliased = {name.lower() for name in re.findall(pattern, text, re.IGNORECASE)}
            tables = [table for table in self._named(text) if aliased & {table.name, table.full_name}]
        for table in tables:
            yield from _columns(table)

    def _all_names(self, text: str) -> Iterator[str]:
        yield from self._all_databases()
        yield from (table.name for table in self._tables_of(self._session.database))
        for table in self._named(text):
            yield from _columns(table)

    def _all_databases(self) -> list[str]:
        if self._databases is None:
            self._databases = [database.name for database in self._catalog.list_databases()]
        return self._databases

    def _tables_of(self, database: str) -> list[Table]:
        if database not in self._tables:
            with suppress(CatalogError):
                self._tables[database] = self._catalog.list_tables(database)
        return self._tables.get(database, [])

    def _named(self, text: str) -> Iterator[Table]:
        """Yield the tables whose names are words of a text."""
        words = {word.lower() for word in _WORD.findall(text)}
        databases = {self._session.database, *(words & set(self._all_databases()))}
        for database in sorted(databases):
            yield from (table for table in self._tables_of(database) if table.name in words)

    @property
    def _catalog(self) -> Catalog:
        return self._session.catalog


def _columns(table: Table) -> Iterator[str]:
    return (column.name for column in (*table.columns, *table.partition_keys))
