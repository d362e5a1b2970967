"""Interactive `calve sql`: reading, completion, history, cancelling, and pages; on a terminal, without Spark."""

from __future__ import annotations

import builtins
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog
from catalog.cli import shell
from catalog.errors import EngineError
from catalog.operations.records import OperationKind
from catalog.statements.results import RowStream
from catalog.statements.session import Session
from catalog.statements.splitting import is_complete

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)


class SlowEngine:
    """An engine whose SELECTs run until they are cancelled, or return as many rows as they are asked for."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.runs = threading.Event()

    def stream(self, query: str, database: str) -> RowStream:
        if number := re.search(r"\d+", query):
            return RowStream(("n",), ([n] for n in range(int(number.group()))))
        self.cancelled.clear()
        self.runs.set()
        assert self.cancelled.wait(60)
        raise EngineError("Job 1 cancelled")

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine()


@pytest.fixture
def session(catalog: Catalog, engine: SlowEngine) -> Iterator[Session]:
    catalog.create_database("shop")
    catalog.create_table(
        "shop.orders", columns=[("id", "int"), ("amount", "double")], partition_keys=[("country", "string")]
    )
    catalog.create_table("demo.oranges", columns=[("colour", "string")])
    start: Any = lambda _catalog: engine  # noqa: E731
    with Session(catalog, database="demo", start=start) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["demo", "oranges", "shop"]),
        ("sel", ["select"]),
        ("SEL", ["SELECT"]),
        ("show par", ["partition", "partitions"]),
        ("SELECT * FROM or", ["oranges", "or", "order"]),
        ("SELECT * FROM sh", ["shop", "show"]),
        ("SELECT * FROM shop.", ["shop.orders"]),
        ("SELECT * FROM shop.orders WHERE c", ["country", "call"]),
        ("SELECT * FROM shop.orders WHERE orders.", ["orders.amount", "orders.country", "orders.id"]),
        ("SELECT * FROM shop.orders AS o JOIN oranges x ON o.a", ["o.amount"]),
        ("SELECT x.colour FROM oranges x WHERE x.", ["x.colour"]),
        ("SELECT * FROM nothing.", []),
    ],
)
def test_words_are_completed(session: Session, text: str, expected: list[str]) -> None:
    found = shell.Completer(session).candidates(text)
    keywords = {keyword.lower() for keyword in shell.keywords()}
    assert [word for word in found if word in expected] == expected
    assert all(word in expected or word.lower() in keywords for word in found)


def test_new_tables_are_completed_after_a_statement(session: Session) -> None:
    completer = shell.Completer(session)
    assert completer.candidates("DROP TABLE shop.n") == []
    session.execute("CREATE TABLE shop.new (a int)")
    completer.forget()
    assert completer.candidates("DROP TABLE shop.n") == ["shop.new"]


@pytest.mark.usefixtures("catalog_url")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", True),
        ("-- only a comment", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 1; SELECT", False),
        ("SELECT 1; /* open", False),
    ],
)
def test_a_script_is_complete_after_its_last_semicolon(script: str, expected: bool) -> None:
    assert is_complete(script) is expected


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "calve" / "sql_history"


def entered(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> list[str]:
    """Return the scripts that the shell reads from these lines."""
    remaining = iter(lines)

    def read(_prompt: str) -> str:
        line = next(remaining, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", read)
    return list(shell._scripts())


@pytest.mark.usefixtures("catalog_url", "history")
def test_statements_may_have_several_lines_and_be_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("SELECT 1", " + 2; SELECT", "3;", "SELECT wrong", KeyboardInterrupt, "help", "SHOW TABLES;", "exit", "no;")
    assert entered(monkeypatch, *lines) == ["SELECT 1\n + 2; SELECT\n3;", "SHOW TABLES;"]


def test_the_history_has_whole_statements_and_no_passwords(
    session: Session, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.readline.clear_history()
    shell._prepare_readline(shell.Completer(session))
    entered(monkeypatch, "SELECT 1 -- one", "+ 2;", "CREATE DATABASE x LOCATION 's3://k:secret@lake/x';", "SHOW x;")
    assert history.read_text().splitlines()[-2:] == ["SELECT 1        + 2;", "SHOW x;"]
    assert history.stat().st_mode & 0o077 == 0
    shell.readline.clear_history()
    shell._prepare_readline(shell.Completer(session))
    assert shell.readline.get_history_item(1) == "SELECT 1        + 2;"


@pytest.mark.parametrize(
    "script",
    [
        "LOAD DATA INPATH 's3://k:secret@lake/x' INTO TABLES t;",
        "LOAD DATA INPATH s3://k:secret@lake/x INTO TABLE t;",
        "SELEC 1; CREATE DATABASE x LOCATION 's3:%2f%2fk:secret@lake/x';",
        "CREATE DATABASES x LOCATION 's3://lake/x?secret_key=secret';",
    ],
)
def test_wrong_statements_with_passwords_are_not_in_the_history(
    catalog_url: str, history: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    shell.readline.clear_history()
    history.parent.mkdir(parents=True)
    entered(monkeypatch, script, "LOAD DATA INPATH 's3://lake/x?region=eu' INTO TABLES t;")
    assert history.read_text().strip() == "LOAD DATA INPATH 's3://lake/x?region=eu' INTO TABLES t;"


def interrupt_when(condition: threading.Event) -> threading.Thread:
    def run() -> None:
        assert condition.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def run(session: Session, text: str) -> None:
    for statement in shell.split(text):
        shell._run(session, statement, is_long=False)


def test_an_interrupt_cancels_the_statement_and_not_the_session(
    session: Session, engine: SlowEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = interrupt_when(engine.runs)
    run(session, "SELECT for_ever")
    thread.join()
    assert capsys.readouterr().err.splitlines()[-1] == "cancelled"
    run(session, "USE shop; SHOW TABLES; SELECT 2")
    assert capsys.readouterr().out.split()[-3:] == ["HIVE", "0", "1"]


def test_an_interrupt_ends_a_wait(
    catalog: Catalog, session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    catalog.operations.begin("first", OperationKind.LOAD_ROWS, "shop.orders", is_exclusive=True)
    catalog.operations.start_job("first", "load")
    monkeypatch.setattr(session, "_wait", shell.timedelta(seconds=60))
    monkeypatch.setattr(session, "_on_wait", lambda _message: waits.set())
    thread, begin = interrupt_when(waits), time.monotonic()
    run(session, "DROP TABLE shop.orders")
    thread.join()
    assert time.monotonic() - begin < 30
    assert capsys.readouterr().err.splitlines()[-1] == "cancelled"
    assert catalog.get_table("shop.orders")


def test_errors_are_printed_and_the_session_goes_on(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    run(session, "SHOW TABLES IN none; DROP x; SHOW DATABASES")
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["demo", "shop"]
    assert [line.partition(":")[0] for line in shown.err.splitlines() if "Error:" in line] == [
        "DatabaseNotFoundError",
        "StatementSyntaxError",
    ]


def test_long_results_are_shown_in_pages_while_they_are_read(
    session: Session, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paged: list[str] = []

    def page(lines: Iterator[str]) -> None:
        paged.extend(line for _, line in zip(range(2000), lines, strict=False))
        raise BrokenPipeError

    monkeypatch.setattr(shell.click, "echo_via_pager", page)
    run(session, "SELECT 10")
    assert (len(capsys.readouterr().out.split()), paged) == (10, [])
    run(session, "SELECT 1000000000")
    assert paged[:2] + paged[-1:] == ["0\n", "1\n", "1999\n"]
    run(session, "SELECT 3")
    assert capsys.readouterr().out.split() == ["0", "1", "2"]


def _become_foreground() -> None:
    """Control the terminal, with Ctrl-C as in a terminal's shell: tests that run in the background ignore it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """`calve sql` on a terminal of its own."""

    def __init__(self) -> None:
        self._controller, terminal = pty.openpty()
        self._seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "catalog.cli", "sql", "--database", "demo"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null"},
            start_new_session=True,
            preexec_fn=_become_foreground,
        )
        os.close(terminal)

    def enter(self, text: str) -> None:
        os.write(self._controller, text.encode())

    def expect(self, *texts: str) -> None:
        """Read until these texts have appeared, one after the other."""
        for text in texts:
            while text not in self._seen:
                assert select.select([self._controller], [], [], 60)[0], f"{text!r} does not come after {self._seen!r}"
                self._read()
            self._seen = self._seen.partition(text)[2]

    def _read(self) -> None:
        self._seen += os.read(self._controller, 4096).decode()

    def interrupt(self, expected: str) -> None:
        """Press Ctrl-C until a text appears.

        Python sees a signal that comes between its prompt and its wait for input only with the next input or signal.
        """
        self.enter("\x03")
        while expected not in self._seen:
            if select.select([self._controller], [], [], 5)[0]:
                self._read()
            else:
                self.enter("\x03")
        self.expect(expected)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._controller)


def test_a_session_on_a_terminal(catalog: Catalog, history: Path) -> None:
    catalog.create_table("demo.oranges", columns=[("colour", "string")])
    terminal = Terminal()
    try:
        terminal.expect("calve> ")
        terminal.enter("DESCRIBE TABLE oran\t;\n")
        terminal.expect("oranges", "colour", "calve> ")
        terminal.enter("SHOW\n")
        terminal.expect("...> ")
        terminal.interrupt("calve> ")
        terminal.enter("SHOW DATABASES;\n")
        terminal.expect("demo\r\n", "calve> ")
        terminal.enter("\x04")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.end()
    assert history.read_text().splitlines() == ["DESCRIBE TABLE oranges;", "SHOW DATABASES;"]
