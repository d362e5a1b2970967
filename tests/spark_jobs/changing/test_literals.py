"""Strings in conditions that cannot be values of the columns they are compared with."""

from __future__ import annotations

import pytest

from catalog import Catalog
from catalog.errors import LiteralTypeError
from catalog.statements.session import Session

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

COLUMNS = "name string, paid boolean, at timestamp, price decimal(10,2), day date"
KINDS = {
    "hive": "(id int, name string, paid boolean, at timestamp, price decimal(10,2)) PARTITIONED BY (day date)",
    "range": f"({COLUMNS}) PARTITIONED BY (id int) STORED BY 'carbondata' TBLPROPERTIES ('PARTITION_TYPE'='RANGE', "
    "'RANGE_INFO'='2, 4')",
}
REFUSED = {
    "day = 'today'": ("day", "today"),
    "day >= 'Yesterday' AND name = 'a'": ("day", "Yesterday"),
    "day IN ('2026-01-02', 'second')": ("day", "second"),
    "name = 'b' AND NOT (day BETWEEN '2026-01-01' AND '2026-02-30')": ("day", "2026-02-30"),
    "orders.id = 'one'": ("id", "one"),
    "'x' < (id)": ("id", "x"),
    "paid = 'no'": ("paid", "no"),
    "day = '202601'": ("day", "202601"),
    "day = '2026-01-02 12:00'": ("day", "2026-01-02 12:00"),
    "at < 'now'": ("at", "now"),
    "at < '23:59'": ("at", "23:59"),
    "at < ' T9:30:00'": ("at", "T9:30:00"),
    "price = 'cheap'": ("price", "cheap"),
}
ACCEPTED = [
    "day = '2026-1-2'",
    "day = '2026-01-02 00:00:00'",
    "id = ' 2 '",
    "paid = 'FALSE'",
    "at > '2026-01-02'",
    "id = 2.0",
]


@pytest.fixture(params=list(KINDS))
def orders(session: Session, catalog: Catalog, request: pytest.FixtureRequest) -> Session:
    """A session with the table `orders`, which has a row of today, too."""
    session.execute(f"CREATE TABLE orders {KINDS[request.param]}")
    session.execute(
        "INSERT INTO orders (id, name, paid, at, price, day) SELECT 1, 'a', true, timestamp '2026-01-01 10:00:00', "
        "1.5, current_date() UNION ALL SELECT 2, 'b', false, timestamp '2026-01-02 10:00:00', 2.5, date '2026-01-02'"
    )
    return session


def count(session: Session, where: str = "true") -> int:
    return int(str(next(iter(session.execute(f"SELECT count(*) FROM orders WHERE {where}").rows))[0]))


def test_a_string_that_is_no_value_of_its_column_is_refused(orders: Session) -> None:
    for condition, (column, text) in REFUSED.items():
        with pytest.raises(LiteralTypeError, match=f"column {column} of shop.orders is of type .*{text}"):
            orders.execute(f"DELETE FROM orders WHERE {condition}")
    assert count(orders) == 2


@pytest.mark.long
def test_all_statements_that_change_rows_refuse_it(orders: Session) -> None:
    condition = "orders.day = 'today'"
    for statement in (
        f"UPDATE orders SET name = 'c' WHERE {condition}",
        f"UPDATE orders SET name = CASE WHEN {condition} THEN 'c' END",
        f"""CALL calve.system.forget('shop.orders', "{condition}")""",
        f"MERGE INTO orders USING (SELECT 1 AS number) s ON {condition} WHEN MATCHED THEN DELETE",
        f"MERGE INTO orders USING (SELECT 1 AS number) s ON id = number WHEN MATCHED AND {condition} THEN DELETE",
        "MERGE INTO orders t USING (SELECT 1 AS number) s ON id = number WHEN MATCHED AND t.day < 'now' THEN DELETE",
    ):
        with pytest.raises(LiteralTypeError, match="column day"):
            orders.execute(statement)
    assert count(orders, "name = 'a'") == 1


@pytest.mark.long
def test_a_string_that_spark_reads_as_a_value_is_accepted(orders: Session) -> None:
    # Also a column of a subquery, whose table is another one.
    condition = " AND ".join([*ACCEPTED, "name IN (SELECT 'b' AS day FROM orders o WHERE name = 'b' AND id = 2)"])
    orders.execute(f"DELETE FROM orders WHERE {condition}")
    assert count(orders) == 1


@pytest.mark.long
def test_strings_that_are_compared_with_columns_of_a_source_are_accepted(orders: Session) -> None:
    orders.execute(
        "MERGE INTO orders t USING (SELECT 9 AS number, 'x' AS day, 'y' AS paid) orders ON id = number AND "
        "orders.paid = 'y' WHEN NOT MATCHED AND day = 'x' THEN INSERT (id, name, paid, at, price, day) VALUES "
        "(number, CASE WHEN day = 'x' THEN 'c' END, true, null, null, date '2026-01-03')"
    )
    assert count(orders, "id = 9 AND name = 'c'") == 1
