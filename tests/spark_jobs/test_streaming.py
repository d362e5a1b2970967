"""Rows of SELECTs as streams and files: the same as those of results, of which memory holds a part; cancelling."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from catalog import Catalog
from catalog.errors import CatalogError, EngineError
from catalog.statements.results import RowStream, as_text, stream_as_text
from catalog.statements.session import Session
from tests.support.commands import calve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)]

TYPED = """SELECT CAST(id AS tinyint) AS t, id, CAST(0.1 AS float) AS f, CAST('NaN' AS double) AS n, 1.50 AS d,
'a,"b' AS s, '' AS e, NULL AS z, DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05.6' AS at, X'00ff' AS b,
array(1, 2) AS a, map('k', 1.5) AS m, named_struct('x', true) AS st, id AS id FROM t ORDER BY t.id"""


@pytest.fixture
def session(spark: SparkSession, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    monkeypatch.setattr("spark_jobs.statement_engine.start_session", lambda *_arguments: configure(spark))
    monkeypatch.setattr("spark_jobs.statement_engine.SparkEngine.close", lambda self: None)
    catalog.create_database("shop")
    with Session(catalog, database="shop", start=lambda opened: SparkEngine(opened, configure(spark))) as opened:
        opened.execute("CREATE TABLE t (id bigint) PARTITIONED BY (k int)")
        opened.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        yield opened


def streamed(session: Session, text: str) -> RowStream:
    stream = session.stream(text)
    assert isinstance(stream, RowStream)
    return stream


def sql(*arguments: str) -> Result:
    return calve("sql", "--database", "shop", *arguments)


def test_streamed_rows_are_those_of_the_result(session: Session) -> None:
    result = session.execute(TYPED)
    stream = streamed(session, TYPED)
    assert stream.columns == result.columns
    assert list(stream.rows) == list(result.rows)
    assert list(stream_as_text(streamed(session, TYPED))) == as_text(result)
    assert list(stream_as_text(streamed(session, "SELECT id FROM t WHERE id > 5"))) == []
    assert list(stream_as_text(streamed(session, "SELECT id, k FROM t WHERE id > 5"))) == ["id  k"]


def test_rows_are_returned_before_later_ones_are_computed(session: Session) -> None:
    union = " UNION ALL ".join(f"SELECT explode(sequence({n * 10}, {n * 10 + 9})) AS n" for n in range(3))
    text = f"SELECT 100 / (25 - n) AS x FROM ({union})"
    stream = streamed(session, text)
    assert len(list(islice(stream.rows, 20))) == 20
    with pytest.raises(EngineError, match="zero"):
        list(stream.rows)
    with pytest.raises(EngineError, match="zero"):
        session.execute(text)


@pytest.mark.long
def test_rows_become_files(session: Session, tmp_path: Path) -> None:
    expected = session.execute(TYPED)
    done = sql(TYPED, "--output", str(tmp_path / "rows.jsonl"))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"3 row(s) in {tmp_path}/rows.jsonl\n")
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [list(line) for line in lines] == [list(dict.fromkeys(expected.columns))] * 3
    assert [line["m"] for line in lines] == [{"k": 1.5}] * 3

    assert sql(TYPED, "--output", str(tmp_path / "rows.csv")).exit_code == 0
    header, first, *_ = (tmp_path / "rows.csv").read_text().splitlines()
    assert header == "t,id,f,n,d,s,e,z,day,at,b,a,m,st,id"
    assert first == (
        '1,1,0.1,NaN,1.50,"a,""b","",,2026-01-02,2026-01-02 03:04:05.6,00ff,"[1, 2]","{""k"": 1.5}","{""x"": true}",1'
    )

    assert sql(TYPED.replace(", id AS id", ""), "--output", str(tmp_path / "rows.parquet")).exit_code == 0
    table = pq.read_table(tmp_path / "rows.parquet")
    assert [str(column_type) for column_type in table.schema.types[:6]] == [
        *("int8", "int64", "float", "double", "decimal128(3, 2)", "string")
    ]
    assert str(table.schema.field("at").type) == "timestamp[us, tz=UTC]"
    assert (table.num_rows, table.column("id").to_pylist()) == (3, [1, 2, 3])
    assert duckdb.sql(f"SELECT m['k'], st.x FROM '{tmp_path}/rows.parquet' LIMIT 1").fetchall() == [(1.5, True)]
    assert {path.name for path in tmp_path.glob("*rows*")} == {"rows.jsonl", "rows.csv", "rows.parquet"}


@pytest.mark.long
def test_a_file_is_whole_or_as_before(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("before")
    for file_format in ("csv", "json", "parquet"):
        done = sql("SELECT 1 / (id - 3) AS x FROM t", "--output", str(path), "--format", file_format)
        assert done.exit_code == 1
        assert done.stderr.startswith("EngineError: ")
        assert (path.read_text(), [file.name for file in tmp_path.glob("*rows*")]) == ("before", ["rows.csv"])
    for arguments, message in {
        ("SHOW TABLES",): "--output takes the rows of one SELECT; the statements have 0",
        ("SELECT 1; SELECT 2",): "--output takes the rows of one SELECT; the statements have 2",
    }.items():
        done = sql(*arguments, "--output", str(path))
        assert (done.exit_code, done.stderr.strip().endswith(message)) == (2, True), done.stderr
    done = sql("SELECT 1", "--output", str(tmp_path / "rows.odd"))
    assert "add --format, one of csv, json, parquet" in done.stderr
    assert "--format is that of a file; add --output FILE" in sql("SELECT 1", "--format", "csv").stderr
    done = sql("USE shop; SELECT max(id) AS m FROM t", "--output", str(path))
    assert (done.exit_code, path.read_text()) == (0, "m\n3\n")


def test_a_cancelled_select_fails_and_the_next_one_runs(session: Session) -> None:
    # Its tasks notice that they are cancelled; those of a join of two lists would keep their cores until they end.
    endless = "SELECT sum(id % 7) AS s FROM range(1000000000000000)"
    errors: list[CatalogError] = []

    def work() -> None:
        try:
            list(streamed(session, endless).rows)
        except CatalogError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(1.5)
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        session.cancel()
        thread.join(0.2)
    assert [type(error) for error in errors] == [EngineError]
    assert list(streamed(session, "SELECT count(*) AS n FROM t").rows) == [[3]]
