"""Statements that read and write rows, on a real session: effects, results and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from catalog import Catalog, IndexState
from catalog.errors import CatalogError
from catalog.operations.job_requests import RunStatementJob
from catalog.operations.records import JobState, OperationKind
from catalog.statements.results import Cell, as_text
from catalog.statements.session import Session
from tests.support.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

LOGS = """CREATE TABLE logs (id int, name string) PARTITIONED BY (day date) STORED BY 'carbondata'
TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2014/01/01, 2015/01/01, 2016/01/01', 'SORT_COLUMNS'='id')"""
LOGS_ROWS = """INSERT INTO logs VALUES (1, 'a', '2013-05-05'), (2, 'b', '2014/05/05'), (3, 'c', '2015-05-05'),
(4, 'd', '2016-05-05'), (5, NULL, NULL), (6, 'it''s', DATE '2014-12-31')"""


def run(session: Session, *statements: str) -> None:
    for text in statements:
        session.execute(text)


def rows(session: Session, text: str) -> list[list[Cell]]:
    return [list(row) for row in session.execute(text).rows]


def refused(session: Session, text: str) -> tuple[str, str | None, str]:
    """Return the error's class, the text at its position, and its message."""
    with pytest.raises(CatalogError) as caught:
        session.execute(text)
    place = caught.value.position
    return type(caught.value).__name__, None if place is None else text[place:], str(caught.value)


def counts(session: Session) -> dict[str, Cell]:
    """Return line of SHOW PARTITIONS → rows."""
    return {str(row[0]): row[1] for row in rows(session, "SHOW PARTITIONS logs")}


def test_rows_are_inserted_selected_and_moved(session: Session) -> None:
    run(session, LOGS)
    assert as_text(session.execute(LOGS_ROWS)) == ["6 row(s) added"]
    answer = session.execute("SELECT id, _partition_id, name, day FROM logs WHERE day >= '2014-06-01' ORDER BY id")
    assert answer.columns == ("id", "_partition_id", "name", "day")
    assert list(answer.rows) == [
        [3, 3, "c", "2015-05-05"],
        [4, 0, "d", "2016-05-05"],
        [6, 2, "it's", "2014-12-31"],
    ]
    everything = rows(session, "SELECT * FROM logs ORDER BY id")
    run(session, "ALTER TABLE logs ADD PARTITION ('2017/01/01')")
    run(session, "ALTER TABLE logs SPLIT PARTITION (2) INTO ('2014-07-01', '2015/01/01')")
    assert counts(session) == {
        "0, day = DEFAULT": 1,
        "1, day < 2014/01/01": 1,
        "5, 2014/01/01 <= day < 2014-07-01": 1,
        "6, 2014-07-01 <= day < 2015/01/01": 1,
        "3, 2015/01/01 <= day < 2016/01/01": 1,
        "4, 2016/01/01 <= day < 2017/01/01": 1,
    }
    assert rows(session, "SELECT * FROM logs ORDER BY id") == everything
    run(session, "ALTER TABLE logs MERGE PARTITION (5, 6)", "ALTER TABLE logs DROP PARTITION (1) WITH DATA")
    assert rows(session, "SELECT * FROM logs ORDER BY id") == everything[1:]


@on_sqlite
def test_partitions_of_intervals_come_by_themselves(session: Session) -> None:
    run(
        session,
        """CREATE TABLE logs (id int) PARTITIONED BY (day date) STORED BY 'carbondata' TBLPROPERTIES
        ('PARTITION_TYPE'='RANGE_INTERVAL', 'RANGE_INFO'='2017-01-01', 'INTERVAL'='1 month')""",
        "INSERT INTO logs VALUES (1, '2016-01-01'), (2, '2017-02-03')",
    )
    assert [row[1] for row in rows(session, "SHOW PARTITIONS logs")] == [0, 1, 0, 1]


@pytest.mark.long
@on_sqlite
def test_a_statement_warns_of_rows_that_are_too_far_out(session: Session) -> None:
    run(
        session,
        """CREATE TABLE logs (id int) PARTITIONED BY (day date) STORED BY 'carbondata' TBLPROPERTIES
        ('PARTITION_TYPE'='RANGE_INTERVAL', 'RANGE_INFO'='2017-01-01', 'INTERVAL'='1 month',
        'calve.max_new_partitions'='3')""",
    )
    for statement in (
        "INSERT INTO logs VALUES (1, '2017-02-03'), (2, '9999-12-31')",
        "INSERT INTO logs SELECT 3, date '9999-12-31'",
    ):
        answer = session.execute(statement)
        assert answer.columns == ("rows", "warning")
        [[_, warning]] = answer.rows
        added, warned = as_text(answer)
        assert added.endswith("row(s) added")
        assert warned == f"warning: {warning}"
        assert "1 row(s) with day up to 9999-12-31" in warned
    assert as_text(session.execute("INSERT INTO logs VALUES (4, '2017-02-04')")) == ["1 row(s) added"]
    assert [row[1] for row in rows(session, "SHOW PARTITIONS logs")] == [2, 0, 0, 2]


@on_sqlite
def test_every_type_comes_back_as_it_was_written(session: Session) -> None:
    types = "tinyint, smallint, int, bigint, float, double, decimal(20,5), boolean, date, timestamp, string, char(4), "
    names = [f"c{number}" for number in range(14)]
    columns = ", ".join(map(" ".join, zip(names, (types + "varchar(4), binary").split(", "), strict=True)))
    values = [
        ["-128", "'32767'", "1e3", "9223372036854775807", "0.1", "-1e300", "123456789012345.12345", "TRUE"],
        ["'2014/1/2'", "'2020-02-29 23:59:59.000001'", "'ü;\\n''x'", "'ab  '", "'abcd'", "X'00fF'"],
    ]
    expected: list[Cell] = [-128, 32767, 1000, 9223372036854775807, 0.1, -1e300, "123456789012345.12345", True]
    expected += ["2014-01-02", "2020-02-29 23:59:59.000001", "ü;\n'x", "ab  ", "abcd", "00ff"]
    for stored in ("STORED AS PARQUET", "PARTITIONED BY (k int) STORED BY 'carbondata' TBLPROPERTIES "):
        is_hashed = stored.endswith(" ")
        properties = "('PARTITION_TYPE'='HASH', 'PARTITION_NUM'='2')" if is_hashed else ""
        run(session, "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({columns}, n array<int>) {stored}{properties}")
        key = ", 7" if is_hashed else ""
        run(session, f"INSERT INTO t VALUES ({', '.join(values[0] + values[1])}, NULL{key})")
        run(session, f"INSERT INTO t ({names[3]}) VALUES (0)")
        found = rows(session, f"SELECT {', '.join(names)}, n FROM t ORDER BY c3")
        assert found == [[None] * 3 + [0] + [None] * 11, [*expected, None]]


@on_sqlite
def test_answers_are_values_of_json(session: Session) -> None:
    answer = session.execute(
        "SELECT array(1, NULL) AS a, struct('x' AS b, DATE'2020-01-01' AS c) AS d, map('k', 1.5D) AS e, "
        "DOUBLE('NaN') AS f, FLOAT('-Infinity') AS g, CAST(0 AS decimal(20,18)) AS h, NULL AS i, 0.1F AS j, "
        "X'AB' AS k, INTERVAL '1' DAY AS l, 'x' AS a"
    )
    assert answer.columns == (*"abdefghijkl"[:1], *"defghijkl", "a")
    assert json.loads(json.dumps([list(row) for row in answer.rows], allow_nan=False)) == [
        [
            [1, None],
            {"b": "x", "c": "2020-01-01"},
            {"k": 1.5},
            "NaN",
            "-Infinity",
            "0.000000000000000000",
            None,
            0.1,
            "ab",
            "INTERVAL '1' DAY",
            "x",
        ]
    ]


@pytest.mark.long
@on_sqlite
def test_selects_are_inserted_by_the_order_of_their_columns(session: Session) -> None:
    run(
        session,
        LOGS,
        LOGS_ROWS,
        "CREATE TABLE copy (id bigint, name varchar(3)) PARTITIONED BY (region string, month int) STORED AS PARQUET",
        "INSERT INTO copy (month, id, region) SELECT month(day), id, 'EU' FROM logs WHERE id < 3",
        "INSERT INTO copy PARTITION (region='US', month=1) SELECT id, name FROM logs WHERE id = 3",
        "INSERT INTO copy PARTITION (region='US', month=1) (name) VALUES ('abc')",
        "INSERT INTO logs (day, id) SELECT DATE'2014-01-01', 7",
    )
    assert rows(session, "SELECT * FROM copy ORDER BY region, month, id") == [
        [1, None, "EU", 5],
        [2, None, "EU", 5],
        [None, "abc", "US", 1],
        [3, "c", "US", 1],
    ]
    assert as_text(session.execute("SHOW PARTITIONS copy")) == ["region=EU/month=5", "region=US/month=1"]
    for text, error in (
        ("INSERT INTO copy SELECT 1, 'long', 'EU', 1", "InvalidRowsError"),
        ("INSERT INTO copy SELECT 1", "InvalidRowsError"),
        ("INSERT INTO logs SELECT 'x', 'y', current_date()", "InvalidRowsError"),
        ("INSERT INTO logs SELECT 1, 2, 3, 4", "InvalidRowsError"),
    ):
        assert refused(session, text)[0] == error
    assert rows(session, "SELECT count(*) FROM copy UNION ALL SELECT count(*) FROM logs") == [[4], [7]]
    # No operation holds the tables after errors.
    run(session, "DROP TABLE logs", "DROP TABLE copy PURGE")


@pytest.mark.long
@on_sqlite
def test_errors_of_queries_are_the_catalogs_and_point_at_the_place(session: Session) -> None:
    run(session, LOGS, "CREATE VIEW v AS SELECT * FROM v", LOGS_ROWS)
    for text, error, place, said in (
        ("SELECT nothing FROM logs", "InvalidQueryError", "nothing FROM logs", "nothing"),
        ("SELECT id\nFROM logs GROUPED BY x", "InvalidQueryError", "BY x", "Syntax error"),
        ("INSERT INTO logs /* c */ SELECT a FROM logs", "InvalidQueryError", "a FROM logs", "`a`"),
        ("SELECT * FROM none", "TableNotFoundError", "none", "table none does not exist"),
        ("INSERT INTO logs SELECT * FROM shop.none", "TableNotFoundError", "shop.none", "shop.none"),
        ("SELECT id / 0 FROM logs", "EngineError", None, "DIVIDE_BY_ZERO"),
        (f"SELECT {'(' * 3000}1{')' * 3000}", "InvalidQueryError", None, "nested too deeply"),
        ("SELECT * FROM v", "InvalidTableError", None, "refers to itself: shop.v → shop.v"),
    ):
        assert refused(session, text)[:2] == (error, place)
        assert said in refused(session, text)[2]
        assert "calve_" not in refused(session, text)[2]
        assert len(refused(session, text)[2]) < 600


@pytest.mark.long
@on_sqlite
def test_views_are_read_as_their_queries(session: Session, catalog: Catalog) -> None:
    catalog.create_database("other")
    run(
        session,
        LOGS,
        LOGS_ROWS,
        "CREATE VIEW early (n, d) AS WITH x AS (SELECT id, day FROM logs) SELECT * FROM x WHERE day < '2015-01-01' --",
        "CREATE VIEW other.names AS SELECT name FROM shop.logs WHERE id IN (SELECT n FROM shop.early)",
        "USE other",
        "CREATE TABLE logs (x int)",
    )
    assert rows(session, "SELECT * FROM names ORDER BY 1") == [["a"], ["b"], ["it's"]]
    assert rows(session, "SELECT count(*), count(e.d), max(early.n) FROM shop.early, shop.early e") == [[9, 9, 6]]
    assert rows(session, "SELECT count(*) FROM logs") == [[0]]


# --- LOAD DATA ------------------------------------------------------------------------------------------------------


FORMATS = ("PARQUET", "ICEBERG")


def loaded(session: Session, path: Path, options: str = "") -> list[list[Cell]]:
    run(session, "DROP TABLE IF EXISTS logs", LOGS, f"LOAD DATA INPATH '{path}' INTO TABLE logs {options}")
    return rows(session, "SELECT id, name, day FROM logs ORDER BY id")


@pytest.mark.long
@on_sqlite
def test_files_of_every_format_are_loaded(session: Session, spark: SparkSession, tmp_path: Path) -> None:
    expected: list[list[Cell]] = [[1, "a", "2014-05-05"], [2, None, "2015-06-07"], [3, "c;,", None]]
    texts = {
        "names.csv": ('day,name,id\n2014-05-05,a,1\n2015/6/7,,2\n,"c;,",3\n', ""),
        "plain.txt": ("1|a|2014/05/05\n2||2015-06-07\n3|c;,|\n", "OPTIONS ('DELIMITER'='|', 'HEADER'='FALSE')"),
        "order.csv": (
            "05.05.2014;a;1\n07.06.2015;;2\n;'c;,';3\n",
            "OPTIONS ('FILEHEADER'='day, name, ID', 'DELIMITER'=';', 'QUOTECHAR'='\\'', 'DATEFORMAT'='dd.MM.yyyy')",
        ),
        "rows.json": (
            '{"id": 1, "name": "a", "day": "2014-05-05"}\n{"id": 2, "day": "2015/06/07"}\n'
            '{"name": "c;,", "id": 3, "day": null}\n',
            "",
        ),
    }
    for name, (text, options) in texts.items():
        (tmp_path / name).write_text(text)
        assert loaded(session, tmp_path / name, options) == expected, name
    frame = spark.sql(
        "SELECT * FROM VALUES ('a', 1, DATE'2014-05-05'), (NULL, 2, DATE'2015-06-07'), ('c;,', 3, NULL) "
        "AS t (name, id, day)"
    )
    for source_format in ("parquet", "orc"):
        frame.write.format(source_format).save(str(tmp_path / f"files_{source_format}"))
        assert loaded(session, tmp_path / f"files_{source_format}") == expected
    run(session, "CREATE TABLE v (id int) PARTITIONED BY (name string, day date) STORED AS PARQUET")
    load = f"LOAD DATA INPATH '{tmp_path / 'names.csv'}' INTO TABLE v"
    error, _, message = refused(session, load)
    assert (error, "line 3: partition key name is null" in message) == ("SourceFileError", True), message
    run(session, f"{load} OPTIONS ('NULLKEYS'='allow')")
    assert len(rows(session, "SHOW PARTITIONS v")) == 3


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    "table",
    [
        LOGS,
        *(f"CREATE TABLE logs (id int, name string) PARTITIONED BY (day date) STORED AS {name}" for name in FORMATS),
    ],
    ids=["scheme", *FORMATS],
)
def test_load_data_loads_each_file_once(session: Session, catalog: Catalog, tmp_path: Path, table: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("id,name,day\n1,a,2014-05-05\n")
    load = f"LOAD DATA INPATH '{source}' INTO TABLE logs"
    run(session, table, load)
    error, _, message = refused(session, load)
    assert error == "SourceFileError"
    assert f"1 file(s) were already loaded into shop.logs: {source}/a.csv. LOAD DATA with OVERWRITE" in message
    (source / "b.csv").write_text("id,name,day\n2,b,2014-05-05\n")
    warning = "1 of 2 file(s) were loaded before, and are left out"
    for _ in range(2):  # the second time as a retry
        assert [*session.execute(load, operation_id="again").rows] == [[1, warning]]
    assert rows(session, "SELECT id FROM logs ORDER BY id") == [[1], [2]]
    if table != LOGS:
        assert catalog.loading.discover("load", "shop.logs", str(source)) == []

    (source / "b.csv").write_text("id,name,day\n22,b,2014-05-05\n")
    assert f"1 file(s) changed after they were loaded into shop.logs: {source}/b.csv" in refused(session, load)[2]
    run(session, load.replace("INTO", "OVERWRITE INTO"))
    assert rows(session, "SELECT id FROM logs ORDER BY id") == [[1], [22]]
    assert "were already loaded" in refused(session, load)[2]
    run(session, f"{load} OPTIONS ('RELOAD'='true')")
    assert rows(session, "SELECT id FROM logs ORDER BY id") == [[1], [1], [22], [22]]
    assert "option RELOAD is 'yes'" in refused(session, f"{load} OPTIONS ('RELOAD'='yes')")[2]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize(
    "table",
    [LOGS, "CREATE TABLE logs (id int, name string) PARTITIONED BY (day date) STORED AS PARQUET"],
    ids=["scheme", "values"],
)
def test_values_without_names_stand_for_columns_in_their_order(session: Session, tmp_path: Path, table: str) -> None:
    run(session, table, "INSERT INTO logs VALUES (1, 'a', '2014-05-05')")
    run(session, "ALTER TABLE logs ADD COLUMNS (note string)")
    run(session, "INSERT INTO logs VALUES (2, 'b', '2014-01-01', '2015-05-05')")
    run(session, "INSERT INTO logs SELECT 3, 'c', '2014-02-02', DATE '2016-05-05'")
    (tmp_path / "rows.csv").write_text("4,d,2014-03-03,2017-05-05\n")
    run(session, f"LOAD DATA INPATH '{tmp_path}/rows.csv' INTO TABLE logs OPTIONS ('HEADER'='false')")
    expected = [
        [1, "a", None, "2014-05-05"],
        [2, "b", "2014-01-01", "2015-05-05"],
        [3, "c", "2014-02-02", "2016-05-05"],
        [4, "d", "2014-03-03", "2017-05-05"],
    ]
    assert rows(session, "SELECT * FROM logs ORDER BY id") == expected
    run(session, "ALTER TABLE logs DROP COLUMN name", "INSERT INTO logs VALUES (5, 'e', '2017-06-06')")
    answer = session.execute("SELECT * FROM logs ORDER BY id")
    assert answer.columns == ("id", "note", "day")
    assert list(answer.rows) == [*[[number, *rest] for number, _, *rest in expected], [5, "e", "2017-06-06"]]


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("source_format", ["json", "parquet", "orc"])
def test_rows_without_a_key_are_not_loaded(
    session: Session, spark: SparkSession, tmp_path: Path, source_format: str
) -> None:
    for number, text in enumerate(["1 AS id, 'a' AS name, DATE'2014-05-05' AS day", "2 AS id, 'b' AS name"]):
        frame = spark.sql(f"SELECT {text}").coalesce(1)
        frame.write.format(source_format).save(str(tmp_path / "rows" / f"part={number}"))
    run(session, LOGS, "CREATE TABLE v (id int, name string) PARTITIONED BY (day date) STORED AS PARQUET")
    for table in ("logs", "v"):
        statement = f"LOAD DATA INPATH '{tmp_path}/rows/*/*' INTO TABLE {table} OPTIONS ('FORMAT'='{source_format}')"
        error, _, message = refused(session, statement)
        assert (error, "has no " in message, "part=1" in message) == ("SourceFileError", True, True), message
        assert rows(session, f"SELECT count(*) FROM {table}") == [[0]]


@pytest.mark.long
@on_sqlite
def test_rows_come_into_partitions_of_timestamps_numbers_and_truths(session: Session, tmp_path: Path) -> None:
    run(
        session,
        "CREATE TABLE v (id int) PARTITIONED BY (at timestamp, price decimal(5,2), ok boolean, x double) "
        "STORED AS PARQUET",
        "INSERT INTO v VALUES (1, TIMESTAMP '2024-01-02 10:00:00', 1.5, true, -0.0), "
        "(2, '2024/1/2 10:00', '1.50', 'TRUE', 0)",
        "INSERT INTO v PARTITION (at='2024-01-02 10:00:00.0', price=1.5, ok=true, x=0) SELECT 3",
        "INSERT INTO v SELECT 4, timestamp'2024-01-02 10:00:00.5', 2BD, false, double('NaN')",
    )
    path = tmp_path / "rows.csv"
    path.write_text("at,price,ok,x,id\n02.01.2024 10:00,1.500,true,0.0,5\n")
    run(session, f"LOAD DATA INPATH '{path}' INTO TABLE v OPTIONS ('TIMESTAMPFORMAT'='dd.MM.yyyy HH:mm')")
    assert [row[:2] for row in rows(session, "SHOW PARTITIONS v")] == [
        ["at=2024-01-02 10%3A00%3A00/price=1.50/ok=true/x=0.0", 4],
        ["at=2024-01-02 10%3A00%3A00.5/price=2.00/ok=false/x=NaN", 1],
    ]
    found = rows(session, "SELECT id FROM v WHERE at = '2024-01-02 10:00:00' AND ok AND x < 1 ORDER BY id")
    assert found == [[1], [2], [3], [5]]
    assert rows(session, "SELECT id, price FROM v WHERE x > 1") == [[4, "2.00"]]


@on_sqlite
def test_what_cannot_be_loaded_is_refused_with_its_place(session: Session, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("id,name,day\n1,a,2014-05-05\n2,b,soon\n")
    (tmp_path / "other.csv").write_text("id,nickname,day\n1,a,2014-05-05\n")
    (tmp_path / "unknown.bin").write_text("x")
    run(session, LOGS)
    for path, options, said in (
        ("bad.csv", "", "bad.csv, line 3: 2,b,soon"),
        ("other.csv", "", "missing name, unknown nickname"),
        ("none.csv", "", "does not exist"),
        ("unknown.bin", "", "OPTIONS('FORMAT'='csv')"),
        ("bad.csv", "OPTIONS ('FORMAT'='xml')", "unknown format 'xml'"),
        ("bad.csv", "OPTIONS ('COLOUR'='red')", "unknown option COLOUR for CSV"),
        ("bad.csv", "OPTIONS ('FILEHEADER'='id, nickname')", "FILEHEADER names nickname"),
    ):
        error, place, message = refused(session, f"LOAD DATA INPATH '{tmp_path / path}' INTO TABLE logs {options}")
        assert error == "SourceFileError"
        assert place is not None
        assert place.startswith(f"'{tmp_path / path}'")
        assert said in message
    assert rows(session, "SELECT count(*) FROM logs") == [[0]]
    run(session, "DROP TABLE logs")


# --- indexes and scripts --------------------------------------------------------------------------------------------


def test_the_index_of_a_large_table_is_built_by_the_engine(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from catalog.statements.execution import indexes

    monkeypatch.setattr(indexes, "LARGE_TABLE", 2)
    added = " ".join(f"PARTITION (k={number})" for number in range(5))
    run(session, "CREATE TABLE t (a int) PARTITIONED BY (k int) STORED AS PARQUET", f"ALTER TABLE t ADD {added}")
    assert rows(session, "CREATE PARTITION INDEX i ON t (k)") == [["i", str(IndexState.ACTIVE), None]]


def test_a_script_that_is_run_again_adds_nothing_twice(spark: SparkSession, catalog: Catalog, session: Session) -> None:
    from spark_jobs.run_statement import run_statement

    script = f"CREATE DATABASE d; USE d; {LOGS}; {LOGS_ROWS}; SELECT count(*) FROM logs; SELECT * FROM broken"
    catalog.operations.begin("run", OperationKind.RUN_STATEMENT, "d.logs", requested_by="somebody")
    job = RunStatementJob(operation_id="run", step="run_statement", attempt=1, table="d.logs", statements=script)
    for _ in range(2):
        with pytest.raises(CatalogError, match="table broken does not exist"):
            run_statement(spark, catalog, job)
    step = catalog.operations.get_job("run", "statement-4")
    assert step is not None
    assert (step.state, step.attempt, step.result["rows"]) == (JobState.SUCCEEDED, 1, [[6]])
    assert catalog.operations.get("run/statement-4").requested_by == "somebody"
    session.execute("CREATE VIEW d.broken AS SELECT count(*) FROM logs")
    outcomes = run_statement(spark, catalog, job)["outcomes"]
    assert [outcome["ok"] for outcome in outcomes] == [True] * 6
    assert outcomes[-1]["rows"] == [[6]]


@pytest.mark.long
@pytest.mark.slow
@on_sqlite
def test_the_command_runs_a_script_on_one_session(catalog: Catalog, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    avro = "CREATE TABLE a (id int) PARTITIONED BY (n int) STORED AS AVRO; INSERT INTO a VALUES (3, 1)"
    script.write_text(
        f"CREATE DATABASE d; USE d;\n{LOGS};\n{LOGS_ROWS};\nSELECT nothing;\n{avro};\nSELECT * FROM a;\n"
        "SELECT max(id) FROM logs;"
    )
    command = [sys.executable, "-m", "catalog.cli", "sql", "--json", "--keep-going", "--file", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [True, True, True, True, False, True, True, True, True]
    assert (answers[4]["error"], answers[4]["position"]) == ("InvalidQueryError", 7)
    # A separate process does not have the Avro package of another test.
    assert answers[7]["rows"] == [[3, 1]]
    assert answers[8]["rows"] == [[6]]


@on_sqlite
def test_a_missing_data_file_is_named_with_its_table(session: Session, catalog: Catalog, catalog_url: str) -> None:
    run(session, LOGS, LOGS_ROWS)
    with sql_catalog(catalog_url) as iceberg:
        values = pa.table({"n": pa.array([1], pa.int32())})
        location = f"{catalog.get_database('shop').location}/engines"
        table = iceberg.create_table("shop.engines", schema=values.schema, location=location)
        table.append(values)
        path = next(iter(table.scan().plan_files())).file.file_path
    Path(path.removeprefix("file://")).unlink()
    for text in ("SELECT * FROM engines", "SELECT count(x.n + l.id) FROM engines x, logs l"):
        name, _, message = refused(session, text)
        assert (name, "Job aborted" in message) == ("VerificationFailedError", False)
        assert message.startswith(f"table shop.engines: the data file {path.removeprefix('file://')} does not exist")
        assert "`calve check shop.engines` lists" in message


@on_sqlite
def test_a_line_break_is_refused_where_readers_take_each_line_for_a_row(session: Session) -> None:
    run(session, "CREATE TABLE texts (a int, b string) PARTITIONED BY (d string) STORED AS CSV")
    run(session, "INSERT INTO texts VALUES (1, 'a,b\"c', 'k')")
    for text in ("INSERT INTO texts VALUES (2, 'x\ny', 'k')", "UPDATE texts SET b = 'x\r\ny' WHERE a = 1"):
        assert "column b: 'x…y' has a line break (shown as …), which CSV data files cannot" in refused(session, text)[2]
    assert rows(session, "SELECT * FROM texts") == [[1, 'a,b"c', "k"]]
