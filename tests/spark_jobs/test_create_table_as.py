"""CREATE TABLE … AS SELECT and INSERT … VALUES on a real session: rows, types, formats and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog import Catalog
from catalog.errors import CatalogError
from catalog.statements.results import Cell
from catalog.statements.session import Session

if TYPE_CHECKING:
    import duckdb

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)

SOURCE = (
    "CREATE TABLE orders (id bigint, amount decimal(9,2), note string) PARTITIONED BY (country string, day date)",
    "INSERT INTO orders VALUES (1, 10.5, 'a', 'DE', '2026-01-01'), (2, 20, NULL, 'DE', '2026-01-02'), "
    "(3, 7.25, 'c', 'US', '2026-01-01')",
)


@pytest.fixture
def orders(session: Session) -> Session:
    for text in SOURCE:
        session.execute(text)
    return session


def rows(session: Session, text: str) -> list[list[Cell]]:
    return [list(row) for row in session.execute(text).rows]


def columns(session: Session, table: str) -> list[list[Cell]]:
    return [row[:2] for row in rows(session, f"DESCRIBE {table}") if row[0] and not str(row[0]).startswith("#")]


def data_files(warehouse: Path) -> list[Path]:
    return [path for path in warehouse.rglob("*") if path.is_file() and "orders" not in path.parts]


@pytest.mark.long
def test_tables_of_all_kinds_are_created_with_their_rows(
    orders: Session, catalog: Catalog, warehouse: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    query = "SELECT country, id, amount * 2 AS Double_Amount, day FROM orders WHERE amount > 8"
    expected = [["DE", 1, "21.00", "2026-01-01"], ["DE", 2, "40.00", "2026-01-02"]]
    select = "SELECT country, id, double_amount, day FROM {} ORDER BY id"
    for name, clauses in {
        "plain": "",
        "orc_keys": "PARTITIONED BY (country, day) USING orc TBLPROPERTIES ('a'='b')",
        "iceberg_keys": "PARTITIONED BY (day) STORED AS ICEBERG",
        "indexed": "PARTITIONED BY (country string, day date) PARTITION INDEX by_day (day) COMMENT 'of the shop'",
        "hashed": "PARTITIONED BY (id bigint) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='HASH', 'PARTITION_NUM'='3')",
    }.items():
        answer = orders.execute(f"CREATE TABLE {name} {clauses} AS {query}")
        assert answer.text == f"2 row(s) in the new table shop.{name}"
        assert rows(orders, select.format(name)) == expected, name
        assert catalog.get_table(f"shop.{name}").location == str(warehouse / "shop" / name)
    assert columns(orders, "orc_keys")[:2] == [["id", "bigint"], ["double_amount", "decimal(11,2)"]]
    assert catalog.get_table("shop.orc_keys").format == "orc"
    assert [index.name for index in catalog.get_partition_indexes("shop.indexed")] == ["by_day"]
    assert len(list(catalog.get_partitions("shop.orc_keys"))) == 2
    iceberg = catalog.get_table("shop.iceberg_keys")
    assert iceberg.is_stored_as_iceberg
    scan = f"SELECT id, double_amount::double FROM iceberg_scan('{iceberg.published_location}') ORDER BY id"
    assert duck.execute(scan).fetchall() == [(1, 21.0), (2, 40.0)]
    orders.execute("INSERT INTO iceberg_keys SELECT * FROM iceberg_keys")
    assert rows(orders, "SELECT count(*) FROM iceberg_keys") == [[4]]
    assert [table.name for table in catalog.list_tables("shop")] == [
        *("hashed", "iceberg_keys", "indexed", "orc_keys", "orders", "plain")
    ]


@on_sqlite
@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("AS SELECT 1 AS `a/b`", "InvalidQueryError", r"column 'a/b' of the SELECT has a name.*give it one with AS"),
        ("AS SELECT 1 AS a, 2 AS A", "InvalidTableError", "a more than once"),
        ("AS SELECT NULL AS a", "InvalidQueryError", r"column a of the SELECT has the type void.*CAST\(a AS string\)"),
        ("AS SELECT INTERVAL 1 DAY AS a", "InvalidQueryError", "column a of the SELECT has the type interval day"),
        ("AS SELECT missing FROM orders", "InvalidQueryError", "missing"),
        ("AS SELECT 1 AS a FROM none", "TableNotFoundError", "none"),
        ("PARTITIONED BY (note int) AS SELECT id, note FROM orders", "InvalidRowsError", "note"),
        ("AS SELECT id, assert_true(id < 3) AS a, raise_error('a test') AS b FROM orders", "EngineError", "."),
        ("AS SELECT CAST(concat('x', id) AS int) AS a FROM orders", "EngineError", "x1|x2|x3"),
        ("STORED AS ICEBERG AS SELECT CAST(concat('x', id) AS int) AS a FROM orders", "EngineError", "x1|x2|x3"),
        (
            "PARTITIONED BY (id bigint) STORED BY 'carbondata' TBLPROPERTIES ('PARTITION_TYPE'='HASH', "
            "'PARTITION_NUM'='3') AS SELECT id, 1 / (id - 1) AS a FROM orders",
            "EngineError",
            "zero",
        ),
    ],
)
def test_a_failed_statement_leaves_neither_a_table_nor_files(
    orders: Session, catalog: Catalog, warehouse: Path, statement: str, error: str, message: str
) -> None:
    with pytest.raises(CatalogError, match=f"(?s){message}") as caught:
        orders.execute(f"CREATE TABLE t {statement}")
    assert type(caught.value).__name__ in (error, "InvalidQueryError")
    assert [table.name for table in catalog.list_tables()] == ["orders"]
    assert data_files(warehouse) == []
    orders.execute("CREATE TABLE t AS SELECT 1 AS a")
    assert rows(orders, "SELECT * FROM t") == [[1]]


@pytest.mark.long
@on_sqlite
def test_values_are_inserted_with_their_types_all_or_none(orders: Session, catalog: Catalog) -> None:
    orders.execute("INSERT OVERWRITE orders VALUES (9, 1.25, 'new', 'DE', '2026-01-01')")
    assert rows(orders, "SELECT id FROM orders ORDER BY id") == [[2], [3], [9]]
    orders.execute("INSERT OVERWRITE orders PARTITION (country='DE') (id, day) VALUES (8, '2026-03-01')")
    assert rows(orders, "SELECT id, amount, day FROM orders WHERE country = 'DE'") == [[8, None, "2026-03-01"]]
    before = rows(orders, "SELECT * FROM orders ORDER BY id")
    for values, message in {
        "(1, 1.255, 'a', 'DE', '2026-01-01')": r"row 2, column amount of type decimal\(9,2\)",
        "(1, 1, 'a', 'DE', '2026-02-30')": "row 2, column day of type date",
        "('one', 1, 'a', 'DE', '2026-01-01')": "row 2, column id of type bigint",
        "(1, 1, 'a', 'DE')": "row 2 has 4 values for 5 columns",
    }.items():
        for insert in ("INSERT INTO", "INSERT OVERWRITE"):
            with pytest.raises(CatalogError, match=message):
                orders.execute(f"{insert} orders VALUES (5, 5, 'x', 'FR', '2026-01-05'), {values}")
    assert rows(orders, "SELECT * FROM orders ORDER BY id") == before


@pytest.mark.long
@on_sqlite
def test_a_table_with_the_name_for_collecting_rows_is_not_dropped(orders: Session) -> None:
    orders.execute("CREATE TABLE big__creating (id int) PARTITIONED BY (n int)")
    orders.execute("INSERT INTO big__creating VALUES (1, 1)")
    with pytest.raises(CatalogError, match="big__creating exists, and CREATE TABLE … AS SELECT needs its name"):
        orders.execute("CREATE TABLE big AS SELECT * FROM orders")
    assert rows(orders, "SELECT * FROM big__creating") == [[1, 1]]
    orders.execute("ALTER TABLE big__creating RENAME TO other")
    orders.execute("CREATE TABLE big AS SELECT * FROM orders")
    assert rows(orders, "SELECT count(*) FROM big") == [[3]]
