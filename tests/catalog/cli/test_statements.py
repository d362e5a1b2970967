"""`calve sql` on the catalog without Spark: its output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from catalog import Catalog
from catalog.cli.main import main
from catalog.cli.statements import pointer

pytestmark = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

LOGS = """CREATE TABLE demo.logs (a int) PARTITIONED BY (logdate date) STORED BY 'carbondata'
TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2014/01/01, 2015/01/01')"""

HEADER = "database  table  type  metadata_location"


def sql(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sql", *arguments], input=stdin)


@pytest.mark.usefixtures("catalog")
def test_one_column_is_printed_bare_and_several_as_a_table() -> None:
    done = sql(f"{LOGS}; SHOW PARTITIONS demo.logs; SHOW TABLES IN demo")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "0, logdate = DEFAULT",
        "1, logdate < 2014/01/01",
        "2, 2014/01/01 <= logdate < 2015/01/01",
        HEADER,
        "demo      logs   HIVE",
    ]


@pytest.mark.usefixtures("catalog")
def test_long_prints_what_partitions_hold() -> None:
    done = sql("--long", "--database", "demo", f"{LOGS}; SHOW PARTITIONS logs")
    assert done.stdout.splitlines()[:2] == [
        "partition                              row_count  size_bytes  file_count",
        "0, logdate = DEFAULT                           0           0           0",
    ]


@pytest.mark.usefixtures("catalog")
def test_json_is_one_object_a_line_with_all_columns() -> None:
    done = sql("--json", "--keep-going", f"{LOGS}; SHOW PARTITION demo.logs; SHOW PARTITIONS demo.logs -- all\n;")
    assert (done.exit_code, done.stderr) == (1, "")
    created, failed, shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert created == {"statement": LOGS, "ok": True, "columns": [], "rows": []}
    assert failed == {
        "statement": "SHOW PARTITION demo.logs",
        "ok": False,
        "error": "StatementSyntaxError",
        "message": "'demo' cannot be read; expected INDEXES",
        "position": 15,
    }
    assert shown["statement"] == "SHOW PARTITIONS demo.logs"
    assert shown["columns"] == ["partition", "row_count", "size_bytes", "file_count"]
    assert shown["rows"][0] == ["0, logdate = DEFAULT", 0, 0, 0]


@pytest.mark.usefixtures("catalog")
def test_explain_is_text_or_the_object() -> None:
    sql(LOGS)
    statement = "EXPLAIN PARTITIONS demo.logs WHERE logdate = '2014-05-05'"
    assert "partitions read" in sql(statement).stdout
    answer = json.loads(sql("--json", statement).stdout)
    assert answer["columns"] == ["plan"]
    [[plan]] = answer["rows"]
    assert (plan["partitions_read"], plan["files_read"], plan["files_pruned"]) == ([2], 0, 0)


@pytest.mark.usefixtures("catalog")
def test_errors_go_to_stderr_with_a_mark_at_the_place() -> None:
    done = sql("--keep-going", "CREATE TABLE demo.t (\n\ta int,\n\tb flot);\nSHOW TABLES IN demo; DROP TABLE demo.none")
    assert (done.exit_code, done.stdout.splitlines()) == (1, [HEADER])
    lines = done.stderr.splitlines()
    assert lines[0].startswith("UnknownTypeError: type flot is not known")
    assert lines[1:3] == ["  \tb flot)", "  \t  ^"]
    assert lines[3:] == [
        "TableNotFoundError: table demo.none does not exist; `calve tables` lists all tables",
        "  DROP TABLE demo.none",
        "             ^",
    ]


@pytest.mark.usefixtures("catalog")
def test_without_keep_going_the_first_error_is_the_end() -> None:
    done = sql("SHOW TABLES IN none; SHOW TABLES IN demo")
    assert (done.exit_code, done.stdout) == (1, "")


@pytest.mark.usefixtures("catalog")
def test_statements_come_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "script.sql"
    path.write_text("-- für uns\nCREATE DATABASE a;\n\nSHOW DATABASES;")
    assert sql("--file", str(path)).stdout.splitlines() == ["a", "demo"]
    assert sql("--file", "-", stdin="USE demo; SHOW TABLES").stdout.splitlines() == [HEADER]
    assert sql("").exit_code == 0
    path.write_bytes(b"SHOW DATABASES \xff")
    for arguments in ([], ["SHOW DATABASES", "--file", str(path)], ["--file", str(path)], ["--file", "none.sql"]):
        done = sql(*arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "Usage: " in done.stderr


@pytest.mark.usefixtures("catalog")
def test_a_database_that_is_meant_can_be_named() -> None:
    sql("CREATE DATABASE x; USE x; CREATE TABLE t (a int)")
    assert sql("--database", "X", "SHOW TABLES").stdout.splitlines() == [HEADER, "x         t      HIVE"]


@pytest.mark.long
def test_each_answer_is_there_before_the_next_statement_runs(catalog: Catalog) -> None:
    command = [sys.executable, "-m", "catalog.cli", "sql", "--json", "--file", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("SHOW DATABASES; SHOW TABLES IN demo; SELECT")
        running.stdin.close()
        answers = [json.loads(line) for line in running.stdout]
    assert [answer["ok"] for answer in answers] == [True, True, False]
    assert running.returncode == 1


def test_the_mark_is_below_the_place(catalog: Catalog) -> None:
    for statement in ("DROP x", "\n  DROP\n\t x y\n", "a" * 300 + "DROP x" + "b" * 300, "ä" * 60 + "DROP x"):
        position = statement.index("x")
        line, mark = pointer(statement, position)
        assert mark.endswith("^")
        assert line[len(mark) - 1] == "x"
        assert len(line) < 110
    assert pointer("DROP", 4) == ["  DROP", "      ^"]
    assert pointer("DROP", None) == []
