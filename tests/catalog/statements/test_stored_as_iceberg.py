"""Statements on tables stored as Iceberg, without rows."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from catalog import Catalog
from catalog.cli.main import main
from catalog.errors import (
    AlreadyIcebergError,
    CatalogError,
    InvalidTableError,
    StatementSyntaxError,
    UnsupportedChangeError,
)
from catalog.statements.session import Session
from tests.support.partition_files import append, stored_rows

COLUMNS = "(`v` int)\nPARTITIONED BY (`origin` string, `month` int)"


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    with Session(catalog, database="demo") as opened:
        yield opened


def rows(session: Session, text: str) -> list[list[object]]:
    return [list(row) for row in session.execute(text).rows]


@pytest.mark.parametrize(
    "definition",
    [
        "(v int) PARTITIONED BY (origin string, month int) STORED AS ICEBERG",
        "(v int) PARTITIONED BY (origin string, month int) STORED BY iceberg",
        "(v int) PARTITIONED BY (origin string, month int) STORED BY "
        "'org.apache.iceberg.mr.hive.HiveIcebergStorageHandler'",
        "(month int, v int, origin string) USING iceberg PARTITIONED BY (origin, month)",
    ],
)
def test_the_spellings_of_engines_create_the_same_table(
    catalog: Catalog, catalog_url: str, session: Session, definition: str
) -> None:
    session.execute(f"CREATE TABLE t {definition}")
    table = catalog.get_table("demo.t")
    assert table.is_stored_as_iceberg
    assert [(column.name, column.type) for column in table.columns] == [("v", "int")]
    assert [(key.name, key.type) for key in table.partition_keys] == [("origin", "string"), ("month", "int")]
    [[shown]] = rows(session, "SHOW CREATE TABLE t")
    assert "STORED AS ICEBERG" in str(shown)
    session.execute("DROP TABLE t")
    session.execute(str(shown))
    assert rows(session, "SHOW CREATE TABLE t") == [[shown]]
    assert stored_rows(catalog, "demo.t") == []


def test_it_is_shown_as_an_iceberg_table_with_its_partitions(
    catalog: Catalog, catalog_url: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.execute(
        "CREATE TABLE t (v int) PARTITIONED BY (origin string, month int) PARTITION INDEX i (month) STORED AS ICEBERG"
    )
    session.execute("CREATE TABLE u (v int) STORED AS ICEBERG")
    append(catalog, "one", "demo.t", {("JFK", "1"): [1, 2], ("LGA", "2"): [3]})
    append(catalog, "two", "demo.u", {(): [1]})
    facts = {name: value for name, value, _ in rows(session, "DESCRIBE FORMATTED t")}
    location = catalog.get_table("demo.t").published_location
    assert (facts["Provider"], facts["Metadata Location"]) == ("iceberg", location)
    assert (facts["Partitions"], facts["Rows"], facts["Files"]) == ("2", "3", "2")
    assert facts["Partition Indexes"] == "i (month) ACTIVE"
    facts = {name: value for name, value, _ in rows(session, "DESCRIBE FORMATTED u")}
    assert (facts["Rows"], facts["Files"]) == ("1", "1")
    assert rows(session, "SHOW TABLES")[0] == ["demo", "t", "ICEBERG", location]
    assert rows(session, "SHOW PARTITIONS t WHERE month = 1")[0][0] == "origin=JFK/month=1"
    monkeypatch.setenv("CALVE_CATALOG_URL", catalog_url)
    assert "iceberg (parquet)  origin string, month int" in CliRunner().invoke(main, ["tables"]).stdout
    listed = map(json.loads, CliRunner().invoke(main, ["tables", "--json"]).stdout.splitlines())
    assert {each["table"]: each["format"] for each in listed} == {"demo.t": "iceberg", "demo.u": "iceberg"}
    shown = CliRunner().invoke(main, ["partitions", "demo.t", "--where", "month = 2", "--json"])
    assert json.loads(shown.stdout) == {
        "partition": "origin=LGA/month=2",
        "values": {"origin": "LGA", "month": "2"},
        "location": None,
        "row_count": 1,
        "file_count": 1,
        "size_bytes": next(each.size_bytes for each in catalog.get_partitions("demo.t", "month = 2")),
        "state": "VISIBLE",
    }


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("ALTER TABLE t ADD PARTITION (origin='SFO', month=1)", UnsupportedChangeError),
        ("ALTER TABLE t ADD PARTITION (origin='SFO', month=1) LOCATION '/elsewhere'", CatalogError),
        ("ALTER TABLE t DROP PARTITION (origin='JFK') PURGE", UnsupportedChangeError),
        ("ALTER TABLE t PARTITION (origin='JFK', month=1) SET FILEFORMAT ORC", UnsupportedChangeError),
        ("ALTER TABLE t PARTITION (origin='JFK', month=1) RENAME TO PARTITION (origin='X', month=1)", CatalogError),
        ("ALTER TABLE t CHANGE month month bigint", UnsupportedChangeError),
        ("MSCK REPAIR TABLE t", UnsupportedChangeError),
        ("CALL iceberg.system.migrate('demo', 't')", AlreadyIcebergError),
        ("CREATE TABLE x (v int) CLUSTERED BY (v) INTO 2 BUCKETS STORED AS ICEBERG", InvalidTableError),
        ("CREATE TABLE x (v int) PARTITIONED BY (w) STORED AS ICEBERG", StatementSyntaxError),
        ("CREATE TABLE x (v int) TBLPROPERTIES ('PARTITION_TYPE'='HASH') STORED AS ICEBERG", CatalogError),
    ],
)
def test_what_does_not_apply_is_refused(
    catalog: Catalog, session: Session, statement: str, error: type[CatalogError]
) -> None:
    session.execute("CREATE TABLE t (v int) PARTITIONED BY (origin string, month int) STORED AS ICEBERG")
    append(catalog, "one", "demo.t", {("JFK", "1"): [1]})
    with pytest.raises(error):
        session.execute(statement)
    assert stored_rows(catalog, "demo.t") == [(1, "JFK", 1)]
