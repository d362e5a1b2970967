"""Statements on the catalog: effects, results and error positions; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from catalog import Catalog
from catalog.errors import CatalogError, EngineUnavailableError, FencedError
from catalog.model import Table, TableKind
from catalog.operations.records import OperationKind, OperationState
from catalog.statements.engine import NewOperation
from catalog.statements.results import Cell
from catalog.statements.session import Session


def no_engine(_catalog: Catalog) -> Any:
    raise EngineUnavailableError("a statement on the catalog alone has asked for the engine")


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    with Session(catalog, database="demo", start=no_engine) as opened:
        yield opened


def rows(session: Session, text: str) -> list[list[Cell]]:
    return [list(row) for row in session.execute(text).rows]


def run(session: Session, *statements: str) -> None:
    for text in statements:
        session.execute(text)


def refused(session: Session, text: str) -> tuple[str, str | None]:
    """Return the error's class, and the text at its position."""
    with pytest.raises(CatalogError) as caught:
        session.execute(text)
    place = caught.value.position
    return type(caught.value).__name__, None if place is None else text[place:]


AREA = """CREATE TABLE area (a int) PARTITIONED BY (country string) STORED BY 'carbondata'
TBLPROPERTIES ('PARTITION_TYPE'='LIST', 'LIST_INFO'='China, US, UK, (Canada, Good, NotGood), (Japan, Korea), Mars')"""
LOGS = """CREATE TABLE logs (a int) PARTITIONED BY (logdate date) STORED BY 'carbondata'
TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2014/01/01, 2015/01/01, 2016/01/01')"""
VINS = """CREATE TABLE vins (a int) PARTITIONED BY (vin string) STORED BY 'org.apache.carbondata.format'
TBLPROPERTIES ('partition_type'='hash', 'num_partitions'='5', 'SORT_COLUMNS'='a, vin', 'Owner'='me')"""
SALES = """CREATE TABLE sales (amount decimal(7,2)) PARTITIONED BY (region string, month int)
PARTITION INDEX by_month (month) STORED AS PARQUET"""


# --- databases and tables -------------------------------------------------------------------------------------


def test_databases_come_and_go(session: Session) -> None:
    run(session, "CREATE DATABASE shop COMMENT 'of things'", "CREATE DATABASE IF NOT EXISTS shop")
    assert rows(session, "SHOW DATABASES") == [["demo"], ["shop"]]
    assert ["Comment", "of things"] in rows(session, "DESCRIBE DATABASE shop")
    run(session, "USE shop", "CREATE TABLE t (a int)")
    assert rows(session, "SHOW TABLES") == [["shop", "t", "HIVE", None]]
    assert rows(session, "SHOW TABLES IN demo") == []
    assert refused(session, "CREATE DATABASE shop") == ("DatabaseAlreadyExistsError", "shop")
    assert refused(session, "DROP DATABASE shop") == ("DatabaseNotEmptyError", "shop")
    run(session, "DROP TABLE t", "DROP DATABASE shop", "DROP DATABASE IF EXISTS shop")
    assert refused(session, "DROP DATABASE shop") == ("DatabaseNotFoundError", "shop")
    assert refused(session, "USE shop") == ("DatabaseNotFoundError", "shop")
    assert refused(session, "SHOW TABLES IN shop") == ("DatabaseNotFoundError", "shop")


def test_the_default_database_is_there_when_it_is_needed(catalog: Catalog) -> None:
    with Session(catalog, start=no_engine) as session:
        assert rows(session, "SHOW TABLES") == []
        run(session, "CREATE TABLE t (a int)", "USE demo", "CREATE TABLE default.u (a int)")
        assert rows(session, "SHOW TABLES IN default") == [
            ["default", "t", "HIVE", None],
            ["default", "u", "HIVE", None],
        ]


def test_a_table_is_described_as_hive_does(session: Session) -> None:
    run(session, SALES.replace("month int", "month int COMMENT '1 to 12'"))
    assert rows(session, "DESCRIBE sales") == [
        ["amount", "decimal(7,2)", None],
        ["region", "string", None],
        ["month", "int", "1 to 12"],
        ["# Partition Information", None, None],
        ["# col_name", "data_type", "comment"],
        ["region", "string", None],
        ["month", "int", "1 to 12"],
    ]
    session.execute("ALTER TABLE sales ADD PARTITION (region='EU', month=1)")
    facts = {row[0]: row[1] for row in rows(session, "DESC FORMATTED demo.sales")}
    assert (facts["Type"], facts["Format"], facts["Partition Type"]) == ("MANAGED_TABLE", "PARQUET", "VALUE")
    assert (facts["Partitions"], facts["Rows"]) == ("1", "unknown")
    assert facts["Partition Indexes"] == "by_month (month) ACTIVE"


def test_a_table_with_a_scheme_is_described_with_it(session: Session) -> None:
    run(session, VINS)
    assert rows(session, "DESCRIBE vins")[:2] == [["a", "int", None], ["vin", "string", None]]
    facts = {row[0]: row[1] for row in rows(session, "DESCRIBE EXTENDED vins")}
    assert (facts["Partition Type"], facts["Partition Num"], facts["Sort Columns"]) == ("HASH", "5", "a, vin")
    assert (facts["Rows"], facts["Files"], facts["Table Properties"]) == ("0", "0", "[Owner=me]")


def test_columns_with_a_default_of_spark_need_a_value(session: Session, catalog: Catalog) -> None:
    run(session, SALES)
    field = {"name": "Note", "type": "string", "nullable": True, "metadata": {"CURRENT_DEFAULT": "'new'"}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    properties = {"spark.sql.sources.schema": schema}
    columns = [("id", "int"), ("note", "string")]
    catalog.create_table("demo.t", columns=columns, partition_keys=[("k", "int")], properties=properties)
    for insert in ("INSERT INTO t (id, k) VALUES (1, 2)", "INSERT INTO t PARTITION (k=1) (id) SELECT 1"):
        with pytest.raises(CatalogError, match="column note gets no value, and has the default 'new' of Spark"):
            session.execute(insert)


def test_tables_are_altered(session: Session, catalog: Catalog) -> None:
    run(
        session,
        SALES,
        "ALTER TABLE sales SET TBLPROPERTIES ('comment'='of all regions', 'x'='1', 'y'='2')",
        "ALTER TABLE sales UNSET TBLPROPERTIES ('x')",
        "ALTER TABLE sales UNSET TBLPROPERTIES IF EXISTS ('x')",
        "ALTER TABLE sales ADD COLUMNS (note string COMMENT 'kept')",
        "ALTER TABLE sales CHANGE note remark varchar(9)",
        "ALTER TABLE sales RENAME COLUMN amount TO total",
        "ALTER TABLE sales ADD COLUMNS (x int, y int, z int)",
        "ALTER TABLE sales DROP COLUMNS (x, Y)",
        "ALTER TABLE sales DROP COLUMN z",
        "ALTER TABLE sales RENAME TO turnover",
    )
    table = catalog.get_table("demo.turnover")
    assert (table.description, dict(table.properties)) == ("of all regions", {"y": "2"})
    assert [(each.name, each.type, each.comment) for each in table.columns] == [
        ("total", "decimal(7,2)", None),
        ("remark", "varchar(9)", "kept"),
    ]
    assert refused(session, "ALTER TABLE turnover UNSET TBLPROPERTIES ('x')") == (
        "PropertyNotFoundError",
        "'x')",
    )
    assert refused(session, "ALTER TABLE turnover CHANGE none b int") == ("InvalidTableError", "none b int")
    assert refused(session, "ALTER TABLE turnover DROP COLUMN region")[0] == "InvalidTableError"
    assert refused(session, "ALTER TABLE turnover CHANGE remark remark int")[0] == "UnsupportedChangeError"
    assert refused(session, "ALTER TABLE turnover RENAME TO shop.x")[0] == "InvalidTableError"
    assert refused(session, "ALTER TABLE sales RENAME TO x") == ("TableNotFoundError", "sales RENAME TO x")


def test_views_are_kept_as_they_were_written(session: Session, catalog: Catalog) -> None:
    query = "SELECT total /* ; */ FROM sales -- all"
    run(session, f"CREATE VIEW v (t COMMENT 'sum') COMMENT 'c' AS {query}", "CREATE VIEW IF NOT EXISTS v AS SELECT 1")
    view = catalog.get_table("demo.v")
    assert (view.kind, view.view_text, view.description) == (TableKind.VIEW, query, "c")
    assert refused(session, "CREATE VIEW v AS SELECT 1") == ("TableAlreadyExistsError", "v AS SELECT 1")
    assert refused(session, "DROP TABLE v") == ("NotATableError", "v")
    session.execute("CREATE OR REPLACE VIEW v AS SELECT 2")
    assert catalog.get_table("demo.v").view_text == "SELECT 2"
    assert rows(session, "SHOW CREATE TABLE v") == [["CREATE VIEW `demo`.`v`\nAS SELECT 2"]]
    facts = {row[0]: row[1] for row in rows(session, "DESCRIBE FORMATTED v")}
    assert (facts["Type"], facts["View Text"]) == ("VIRTUAL_VIEW", "SELECT 2")
    run(session, "CREATE TABLE t (a int)")
    assert refused(session, "DROP VIEW t") == ("InvalidTableError", "t")
    assert refused(session, "CREATE OR REPLACE VIEW t AS SELECT 2")[0] == "InvalidTableError"
    run(session, "DROP VIEW v", "DROP VIEW IF EXISTS v")


def test_tables_are_dropped(session: Session) -> None:
    run(session, "CREATE TABLE t (a int)", "CREATE TABLE IF NOT EXISTS t (b int)", "DROP TABLE t")
    run(session, "DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS no.t PURGE")
    assert refused(session, "DROP TABLE t PURGE") == ("TableNotFoundError", "t PURGE")


WRONG_TABLES = [
    (
        LOGS.replace("2015/01/01", "2013/01/01"),
        "BoundsNotAscendingError",
        "'2014/01/01, 2013/",
    ),
    (AREA.replace("Korea", "US"), "DuplicateListValueError", "'China, US"),
    (LOGS.replace("2015/01/01", "soon"), "SchemeValueError", "'2014/01/01, soon"),
    (VINS.replace("'5'", "'many'"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("'5'", "'0'"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("hash", "round"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("vin string", "vin binary"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("a, vin", "b"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("(vin string)", "(vin string, x int)"), "InvalidSchemeError", "'partition_type'"),
    (VINS.replace("org.apache.carbondata.format", "parquet"), "InvalidTableError", "'parquet'"),
    (SALES.replace("PARQUET", "CSV TBLPROPERTIES ('PARTITION_TYPE'='HASH')"), "InvalidSchemeError", "'PARTITION"),
    (SALES.replace("PARQUET", "KUDU"), "InvalidTableError", "KUDU"),
    (SALES.replace("month int", "month binary"), "InvalidKeyTypeError", "region string"),
    (SALES.replace("(month)", "(nothing)"), "InvalidIndexError", "by_month"),
    (SALES.replace("sales (", "none.sales ("), "DatabaseNotFoundError", "none.sales"),
]


def check_refused(session: Session, text: str, error: str, place: str | None) -> None:
    """Check that a statement is refused with an error of this class at the position of this text."""
    name, found = refused(session, text)
    assert name == error, text
    assert found is None if place is None else found is not None and found.startswith(place), (text, found)


def test_a_wrong_table_is_refused_at_its_place(session: Session) -> None:
    for text, error, place in WRONG_TABLES:
        check_refused(session, text, error, place)
    assert rows(session, "SHOW TABLES") == []


# --- rows -----------------------------------------------------------------------------------------------------


WRONG_ROWS = [
    ("INSERT INTO sales VALUES (1.5, 'x', 1), (1.555, 'x', 1)", "InvalidValueError", "1.555, 'x', 1)"),
    ("INSERT INTO sales VALUES (1.5, 'x')", "InvalidValueError", "1.5, 'x')"),
    ("INSERT INTO sales (amount, day) VALUES (1, 2)", "InvalidTableError", "amount, day)"),
    ("INSERT INTO sales (amount, amount) VALUES (1, 2)", "InvalidTableError", "amount, amount)"),
    ("INSERT INTO sales PARTITION (day=1) SELECT 1", "InvalidPartitionSpecError", "day=1) SELECT 1"),
    ("INSERT INTO logs PARTITION (logdate='2014-01-01') VALUES (1)", "InvalidPartitionSpecError", "logdate="),
    ("INSERT INTO logs VALUES (1, '2014-02-30')", "InvalidValueError", "'2014-02-30')"),
    ("INSERT INTO none VALUES (1)", "TableNotFoundError", "none VALUES (1)"),
    ("INSERT INTO v VALUES (1)", "NotATableError", "v VALUES (1)"),
    ("LOAD DATA INPATH 'x' INTO TABLE recorded", "UnsupportedFormatError", "recorded"),
    ("SELECT 1", "EngineUnavailableError", None),
    ("INSERT INTO logs VALUES (1, '2014/02/28')", "EngineUnavailableError", None),
]


def test_rows_are_checked_before_an_engine_is_asked(session: Session) -> None:
    run(session, SALES, LOGS, "CREATE VIEW v AS SELECT 1", "CREATE TABLE recorded (a int) STORED AS RCFILE")
    for text, error, place in WRONG_ROWS:
        check_refused(session, text, error, place)


UNKNOWN_TABLES = [
    ("SELECT * FROM sales JOIN nine USING (amount)", "nine USING (amount)"),
    ("EXPLAIN SELECT * FROM sales, (SELECT * FROM shop.nine)", "shop.nine)"),
    ("INSERT INTO logs SELECT * FROM nine", "nine"),
    ("CREATE TABLE new AS WITH a AS (SELECT 1) SELECT * FROM a, `nine`", "`nine`"),
    ("DELETE FROM sales WHERE amount IN (SELECT amount FROM nine)", "nine)"),
    ("UPDATE sales SET amount = 1 WHERE EXISTS (SELECT 1 FROM nine)", "nine)"),
    ("MERGE INTO sales t USING nine s ON t.amount = s.amount WHEN MATCHED THEN DELETE", None),
    ("SELECT * FROM sales.files", "sales.files"),
    ("SELECT * FROM csv.`/etc/passwd`", "csv.`/etc/passwd`"),
]


@pytest.mark.parametrize(("text", "place"), UNKNOWN_TABLES)
def test_an_unknown_table_is_refused_before_an_engine_is_asked(session: Session, text: str, place: str | None) -> None:
    run(session, SALES, LOGS)
    check_refused(session, text, "TableNotFoundError", place or text[text.index("nine") :])


KNOWN_TABLES = [
    "SELECT * FROM sales s JOIN demo.logs l ON s.amount = l.id, VALUES (1) v, range(3)",
    "WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT (SELECT max(x) FROM (SELECT * FROM b) c) FROM b",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "SELECT x FROM sales LATERAL VIEW explode(array(1)) t AS x WHERE EXISTS (SELECT 1 FROM late WHERE late.n = x)",
    "SELECT * FROM (FROM sales)",
    "DELETE FROM sales WHERE amount IN (SELECT amount FROM sales)",
    "MERGE INTO sales t USING (SELECT * FROM logs) s ON t.amount = s.id WHEN MATCHED THEN DELETE",
]


@pytest.mark.parametrize("text", KNOWN_TABLES)
def test_an_engine_is_asked_about_tables_that_exist(session: Session, text: str) -> None:
    run(session, SALES, LOGS, "CREATE VIEW late AS SELECT 1 AS n")
    check_refused(session, text, "EngineUnavailableError", None)


def test_a_script_stops_at_the_first_error_unless_it_shall_go_on(session: Session) -> None:
    script = "CREATE TABLE a (x int); DROP TABLE none; -- gone\nCREATE TABLE b (x int);"
    assert [outcome.error is None for outcome in session.run(script)] == [True, False]
    run(session, "DROP TABLE a")
    outcomes = list(session.run(script, keep_going=True))
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert json.loads(outcomes[0].as_json()) == {
        "statement": "CREATE TABLE a (x int)",
        "ok": True,
        "columns": [],
        "rows": [],
    }
    failed = json.loads(outcomes[1].as_json())
    assert (failed["statement"], failed["ok"], failed["error"]) == ("DROP TABLE none", False, "TableNotFoundError")
    assert failed["position"] == 11
    assert "demo.none" in failed["message"]


class FencedEngine:
    """An engine whose attempt at a deletion is fenced by another process that runs the same operation."""

    def __init__(self, catalog: Catalog) -> None:
        self._operations = catalog.operations

    def delete_rows(self, operation: NewOperation, table: Table, _where: str, _database: str) -> None:
        self._operations.begin(operation.id, OperationKind.CHANGE_ROWS, table.full_name, is_exclusive=True)
        for _ in range(2):
            self._operations.start_job(operation.id, "change")
        raise FencedError("another attempt has started")

    def close(self) -> None:
        """Do nothing."""


def test_a_fenced_statement_leaves_its_operation_to_the_other_process(session: Session, catalog: Catalog) -> None:
    run(session, SALES)
    start = cast(Callable[[Catalog], Any], FencedEngine)
    with Session(catalog, database="demo", start=start) as fenced, pytest.raises(FencedError):
        fenced.execute("DELETE FROM sales WHERE amount = 1")
    [operation] = catalog.operations.list(kinds=[OperationKind.CHANGE_ROWS])
    assert operation.state is OperationState.RUNNING
