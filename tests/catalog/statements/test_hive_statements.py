"""Statements that Hive's users write: SHOW … LIKE, SHOW COLUMNS, DROP DATABASE … CASCADE, and Hive's indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import Catalog, NewPartition
from catalog.errors import (
    CatalogError,
    ConflictError,
    DatabaseNotEmptyError,
    DatabaseNotFoundError,
    EngineUnavailableError,
    IndexNotFoundError,
    InvalidIndexError,
    OperationConflictError,
    StatementSyntaxError,
    UnsupportedStatementError,
)
from catalog.operations.records import OperationKind
from catalog.statements.results import Cell, as_text
from catalog.statements.session import Session
from catalog.tables.patterns import hive_pattern


def no_engine(_catalog: Catalog) -> Any:
    raise EngineUnavailableError("a statement on the catalog alone has asked for the engine")


@pytest.fixture
def session(catalog: Catalog) -> Iterator[Session]:
    with Session(catalog, database="shop", start=no_engine) as opened:
        opened.execute("CREATE DATABASE shop")
        opened.execute(
            "CREATE TABLE orders (id int, amount double) PARTITIONED BY (country string, day date) STORED AS PARQUET"
        )
        opened.execute("CREATE TABLE returns (id int) STORED AS PARQUET")
        opened.execute("CREATE VIEW open_orders AS SELECT 1 AS one")
        yield opened


def column(session: Session, text: str, number: int = 0) -> list[Cell]:
    return [row[number] for row in session.execute(text).rows]


# --- SHOW -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("", ["open_orders", "orders", "returns"]),
        (" IN shop LIKE '*orders'", ["open_orders", "orders"]),
        (" LIKE 'ORD*|ret%'", ["orders", "returns"]),
        (" 'orders'", ["orders"]),
        (" FROM demo LIKE '*'", []),
        (" LIKE 'order.'", []),
        (" LIKE 'none'", []),
    ],
)
def test_tables_are_shown_by_a_pattern(session: Session, end: str, expected: list[str]) -> None:
    assert column(session, f"SHOW TABLES{end}", 1) == expected


def test_databases_are_shown_by_a_pattern(session: Session) -> None:
    assert column(session, "SHOW DATABASES LIKE 's*'") == ["shop"]
    assert column(session, "SHOW SCHEMAS 'demo|shop'") == ["demo", "shop"]
    assert column(session, "SHOW DATABASES LIKE 'x'") == []


@given(st.text(st.sampled_from("ab.|*%_(["), max_size=6), st.text(st.sampled_from("ab._"), max_size=5))
def test_a_pattern_has_only_stars_percents_and_bars(pattern: str, name: str) -> None:
    def matches(part: str, rest: str) -> bool:
        if not part:
            return not rest
        if part[0] in "*%":
            return any(matches(part[1:], rest[start:]) for start in range(len(rest) + 1))
        return rest[:1] == part[0] and matches(part[1:], rest[1:])

    assert hive_pattern(pattern)(name) == any(matches(part, name) for part in pattern.split("|"))


@pytest.mark.parametrize("end", ["orders", "shop.orders", "orders IN shop", "shop.orders FROM shop"])
def test_columns_are_shown_with_the_keys(session: Session, end: str) -> None:
    assert column(session, f"SHOW COLUMNS IN {end}") == ["id", "amount", "country", "day"]


def test_columns_of_two_databases_are_refused(session: Session) -> None:
    with pytest.raises(StatementSyntaxError, match="the table is in shop, not in demo; name one database"):
        session.execute("SHOW COLUMNS IN shop.orders FROM demo")


# --- DROP DATABASE … CASCADE ------------------------------------------------------------------------------------------


def test_a_database_is_dropped_with_its_tables(session: Session, catalog: Catalog) -> None:
    catalog.create_table("shop.ice", columns=[("id", "int")], partition_keys=[("k", "int")], format="iceberg")
    file = Path(catalog.get_table("shop.orders").location, "day=1", "file")
    file.parent.mkdir(parents=True)
    file.touch()
    catalog.add_partitions("shop.orders", [NewPartition((str(number), "2024-05-01")) for number in range(20)])
    with pytest.raises(DatabaseNotEmptyError, match=r"still has 4 table\(s\); drop them first, or all .*: CASCADE"):
        session.execute("DROP DATABASE shop")
    result = session.execute("DROP DATABASE shop CASCADE")
    assert [row[0] for row in result.rows] == ["shop.ice", "shop.open_orders", "shop.orders", "shop.returns"]
    assert as_text(result) == ["Dropped 4 table(s) and view(s) of shop; their files stay"]
    assert [database.name for database in catalog.list_databases()] == ["demo"]
    assert file.exists()
    with catalog.storage.read() as connection:
        for name in ("calve_table", "calve_partition", "calve_partition_index", "iceberg_tables"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar() == 0, name
    with pytest.raises(DatabaseNotFoundError):
        session.execute("DROP DATABASE shop CASCADE")
    assert session.execute("DROP DATABASE IF EXISTS shop CASCADE").rows == ()


def test_a_running_operation_keeps_the_whole_database(session: Session, catalog: Catalog) -> None:
    catalog.operations.begin("night", OperationKind.LOAD_ROWS, "shop.returns", is_exclusive=True)
    catalog.operations.start_job("night", "load")
    with pytest.raises(ConflictError, match=r"operation night is changing table shop\.returns; .* give-up 'night'"):
        session.execute("DROP DATABASE shop CASCADE")
    assert len(catalog.list_tables("shop")) == 3
    catalog.operations.fail("night", "TEST", "ended")
    session.execute("DROP DATABASE shop CASCADE")


def test_a_load_that_will_create_a_table_keeps_its_database(session: Session, catalog: Catalog) -> None:
    catalog.operations.begin("first", OperationKind.ADD_PARTITIONS, "shop.new", is_exclusive=True)
    with pytest.raises(
        OperationConflictError, match=r"operation first will create table shop\.new, so database shop stays"
    ):
        session.execute("DROP DATABASE shop CASCADE")
    assert len(catalog.list_tables("shop")) == 3


# --- indexes as in Hive -----------------------------------------------------------------------------------------------


def test_an_index_of_hive_on_keys_is_a_partition_index(session: Session, catalog: Catalog) -> None:
    created = session.execute("CREATE INDEX by_day ON TABLE orders (day, country) AS 'COMPACT' WITH DEFERRED REBUILD")
    assert list(created.rows[0]) == ["by_day", "ACTIVE", None]
    assert [index.keys for index in catalog.get_partition_indexes("shop.orders")] == [("day", "country")]
    assert column(session, "SHOW FORMATTED INDEX ON orders") == ["by_day"]
    assert column(session, "SHOW INDEXES ON shop.orders") == ["by_day"]
    session.execute("DROP INDEX IF EXISTS other ON orders")
    with pytest.raises(IndexNotFoundError):
        session.execute("DROP INDEX other ON orders")
    session.execute("DROP INDEX by_day ON TABLE orders")
    assert catalog.get_partition_indexes("shop.orders") == []


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        (
            "CREATE INDEX i ON TABLE orders (amount, day) AS 'COMPACT'",
            InvalidIndexError,
            r"amount is no partition key of shop\.orders, and indexes are on partition keys only: write CREATE "
            r"PARTITION INDEX i ON shop\.orders \(day\)",
        ),
        (
            "CREATE INDEX i ON orders (amount)",
            InvalidIndexError,
            r"write CREATE PARTITION INDEX i ON shop\.orders \(country, day\)",
        ),
        ("CREATE INDEX i ON returns (id)", InvalidIndexError, "partition keys only: the table has none"),
        ("ALTER INDEX i ON orders REBUILD", UnsupportedStatementError, "nothing to rebuild"),
    ],
)
def test_other_indexes_of_hive_are_answered_with_the_statement_to_write(
    session: Session, statement: str, error: type[CatalogError], said: str
) -> None:
    with pytest.raises(error, match=said):
        session.execute(statement)


# --- PURGE ------------------------------------------------------------------------------------------------------------


def test_a_purge_tells_what_it_deleted(session: Session, catalog: Catalog) -> None:
    root = Path(catalog.get_table("shop.orders").location)
    for day in ("2024-05-01", "2024-05-02", "2024-05-03"):
        catalog.add_partitions("shop.orders", [NewPartition(("DE", day))])
        folder = root / "country=DE" / f"day={day}"
        folder.mkdir(parents=True)
        name = f"calve-{catalog.storage.identity}-00001-12345678-1234-1234-1234-123456789012-c000.parquet"
        (folder / name).write_bytes(b"x" * 1000)
    dropped = session.execute("ALTER TABLE orders DROP PARTITION (day='2024-05-01') PURGE")
    assert as_text(dropped) == ["Dropped 1 partition(s) and deleted the files of 1 (1 file(s), 1,000 bytes)."]
    purged = session.execute("DROP TABLE orders PURGE")
    assert as_text(purged) == ["Dropped shop.orders and deleted 2 file(s), 2,000 bytes"]
    assert [list(row) for row in purged.rows] == [[2, 2000, 0]]
    assert not root.exists()
