"""The code blocks of README and docs work as described."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from catalog import Catalog
from catalog.cli.main import main
from catalog.errors import CatalogError
from tests.support.published import duckdb_reader
from tests.support.rest_server import rest_server
from tests.support.snippets import PAGES, REPOSITORY, Command, Snippet, commands, snippets, statements

NOT_RUN = {
    ("make",): "sets up the machine, or runs all of Airflow and Spark: tests/standalone and tests/on_s3",
    ("airflow",): "changes a running Airflow",
    (".calve/bin/airflow",): "needs a running stack; tests/on_s3/test_stack.py runs it",
    ("pip",): "installs packages; tests/plugins/test_wheel.py builds and installs the wheel",
    ("spark-sql",): "starts another Spark; tests/spark_jobs/test_migrated_tables.py reads by the same settings",
    ("pg_dump",): "needs a PostgreSQL client",
    ("docker",): "needs a Docker engine; tests/standalone/test_compose.py compares its file with `make cluster`",
    ("calve", "grants"): "is piped into psql; tests/spark_jobs/test_job_role.py runs what it prints",
    ("calve", "serve"): "serves until it is stopped; tests/catalog/doors/serving/test_server.py runs it",
    ("calve", "import"): "needs a metastore; tests/catalog/importing runs it against real ones",
}
"""The first words of a command → the reason why this module does not run it."""


_REST = "http://127.0.0.1:8181"
"""The address of the REST door in snippets."""


class Reader:
    """Runs the blocks of a page in order in an empty folder, as a reader would.

    Attributes:
        names: The names that Python blocks have defined.
        rest: The address of the REST door that takes the place of the usual one.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.rest = _REST
        self._patch = patch
        self.names: dict[str, Any] = {"__name__": "snippet"}

    def follow(self, snippet: Snippet) -> None:
        if snippet.title is not None:
            path = self._folder / snippet.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(snippet.text)
        follow: Callable[[Snippet], None] = getattr(self, f"_follow_{snippet.language or 'text'}")
        follow(snippet)

    def _follow_console(self, snippet: Snippet) -> None:
        for command in commands(snippet.text):
            if not any(command.words[: len(words)] == words for words in NOT_RUN):
                self._run(command, str(snippet))

    def _run(self, command: Command, place: str) -> None:
        name, *arguments = command.words
        if name == "export":
            variable, _, value = arguments[0].partition("=")
            self._patch.setenv(variable, value.replace("$PWD", str(self._folder)))
            return
        assert name == "calve", f"{place}: no test knows how to run {name}; if none can, say why in NOT_RUN"
        done = CliRunner().invoke(main, [argument.replace("$PWD", str(self._folder)) for argument in arguments])
        is_refused = "Error" in command.output
        assert (done.exit_code != 0) == is_refused, f"{place}: {' '.join(command.words)} printed:\n{done.output}"
        if command.file:
            (self._folder / command.file).write_text(done.stdout)
        if command.output:
            printed = "\n".join(line.rstrip() for line in done.output.splitlines())
            shown = command.output.replace("$PWD", str(self._folder))
            assert printed == shown or re.fullmatch(".*".join(map(re.escape, shown.split("…"))), printed), (
                f"{place} shows\n{shown}\n  and {' '.join(command.words)} prints\n{printed}"
            )

    def _follow_python(self, snippet: Snippet) -> None:
        text = snippet.text.replace(_REST, self.rest)
        exec(compile(text, str(snippet), "exec"), self.names)

    def _follow_sql(self, snippet: Snippet) -> None:
        from catalog.statements.parser import parse_statement

        for statement in statements(snippet.text):
            parse_statement(statement)

    def _follow_yaml(self, snippet: Snippet) -> None:
        from catalog.settings.table_config import read_table_list

        path = self._folder / "tables-of-page.yaml"
        path.write_text(snippet.text)
        assert read_table_list(path).wrong == {}, str(snippet)

    def _follow_json(self, snippet: Snippet) -> None:
        for line in snippet.text.splitlines():
            json.loads(line)

    def _follow_csv(self, snippet: Snippet) -> None:
        assert snippet.title, f"{snippet}: a CSV file needs a title, by which the page's commands find it"

    def _follow_text(self, snippet: Snippet) -> None:
        """A block with a drawing, or with output of a command on another page."""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Runs blocks in an empty folder, with an empty catalog on SQLite."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALVE_CATALOG_URL", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("CALVE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALVE_TABLES", str(REPOSITORY / "tables.yaml"))
    assert CliRunner().invoke(main, ["init"]).exit_code == 0
    return Reader(tmp_path, monkeypatch)


class _SharedSpark:
    """An installed engine that runs statements in the session of the tests."""

    name = "spark"

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def load(self) -> Callable[[Catalog], Any]:
        from spark_jobs.sessions.session import configure
        from spark_jobs.statement_engine import SparkEngine

        spark = configure(self._request.getfixturevalue("spark"))
        return lambda catalog: SparkEngine(catalog, spark)


_FIRST_READ = ("README.md", "docs/first-table.md", "docs/indexes.md")
"""Pages whose snippets run in `make test`."""


def _named(pages: list[Path]) -> list[Any]:
    names = {page: str(page.relative_to(REPOSITORY)) for page in pages if snippets(page)}
    return [
        pytest.param(page, id=name, marks=[] if name in _FIRST_READ else pytest.mark.long)
        for page, name in names.items()
    ]


@pytest.mark.spark
@pytest.mark.parametrize("page", _named(PAGES))
def test_snippets_do_what_their_page_says(
    page: Path, reader: Reader, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.statements.engine.entry_points", lambda group: [_SharedSpark(request)])
    blocks = snippets(page)
    if any("(spark," in block.text for block in blocks if block.language == "python"):
        from spark_jobs.sessions.session import configure

        reader.names["spark"] = configure(request.getfixturevalue("spark"))
    with _front_door(reader, blocks):
        for block in blocks:
            reader.follow(block)


@contextmanager
def _front_door(reader: Reader, blocks: list[Snippet]) -> Iterator[None]:
    """Serve the REST door, and provide DuckDB with its extensions, for a page whose Python blocks use them."""
    if not any(_REST in block.text for block in blocks if block.language == "python"):
        yield
        return
    reader.names["duck"] = duckdb_reader("httpfs")
    with Catalog.open() as catalog, rest_server(catalog) as reader.rest:
        yield


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("language", "text", "error"),
    [
        ("console", '$ calve sql "SHOW DATABASES"\nstore\n', "page.md:1 shows"),
        ("console", '$ calve sql "SHOW DATABASE"\n', "StatementSyntaxError"),
        ("console", "$ calve tables --long\n", "No such option"),
        ("console", "$ calf tables\n", "no test knows how to run calf"),
        ("python", "from catalog import Catalogue\n", "Catalogue"),
        ("python", "assert 1 == 2, 'it is 1'\n", "it is 1"),
        ("sql", "SHOW [ALL] DATABASES\n", "'ALL' cannot be read"),
        ("yaml", "tables:\n  shop.orders: {sauce: /landing}\n", "unknown field sauce"),
        ("json", "{1: 2}\n", "property name"),
        ("toml", "a = 1\n", "_follow_toml"),
    ],
)
def test_a_broken_snippet_is_noticed(reader: Reader, language: str, text: str, error: str) -> None:
    with pytest.raises((AssertionError, AttributeError, CatalogError, ImportError, ValueError), match=re.escape(error)):
        reader.follow(Snippet("page.md", 1, language, None, text))


def test_an_option_of_a_statement_is_parsed_with_and_without_it() -> None:
    shown = "DROP TABLE [IF EXISTS] sales [PURGE]    -- a comment\nMSCK REPAIR TABLE sales [{ADD | DROP} PARTITIONS]"
    assert {" ".join(statement.split()) for statement in statements(shown)} == {
        "DROP TABLE sales",
        "DROP TABLE IF EXISTS sales PURGE",
        "MSCK REPAIR TABLE sales",
        "MSCK REPAIR TABLE sales ADD PARTITIONS",
    }
