"""Columns and formats that a Hive-style table gets, and other tables that get its name, beside a statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.errors import ConflictError, InvalidRowsError
from catalog.model.identifiers import TableName
from tests.support.effort import sampled
from tests.support.entries import ORC
from tests.support.racing_commits import CREATE, NAME, ROWS, STATEMENTS, Orders, Row

pytestmark = pytest.mark.spark

NEW: Row = (50, "n", 1)
COLUMN = (
    "ALTER TABLE orders ADD COLUMNS (extra int)",
    f"INSERT INTO orders (id, note, day, extra) VALUES ({', '.join(map(repr, NEW))}, 777)",
)
"""What another session does: a new column, and a row with a value in it."""

_CREATE = f"{CREATE.replace('note string', 'note string, extra int')} STORED AS PARQUET"
OTHERS = {
    "re-created": ("DROP TABLE orders PURGE", _CREATE, COLUMN[1]),
    "renamed": ("ALTER TABLE orders RENAME TO former", f"{_CREATE} LOCATION '<location>_new'", COLUMN[1]),
}
"""Name → the statements of another session, after which another table has the name, with the location of the first."""

RUN = [statement for statement in STATEMENTS if "overwrite" not in statement]


@pytest.fixture
def hive_orders(orders: Orders) -> Orders:
    """The table, Hive-style."""
    orders.session.execute(f"{CREATE} STORED AS PARQUET")
    orders.create("Hive-style")
    return orders


@pytest.fixture
def before_reservation(
    hive_orders: Orders, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> Callable[[tuple[str, ...]], None]:
    """Runs statements of another session after the next statement has read the table's definition."""

    def set_statements(texts: tuple[str, ...]) -> None:
        begin, is_first, location = catalog.operations.begin, iter([True]), catalog.get_table(NAME).location

        def change_before(*arguments: Any, **options: Any) -> Any:
            if next(is_first, False):
                for text in texts:
                    hive_orders.session.execute(text.replace("<location>", location))
            return begin(*arguments, **options)

        monkeypatch.setattr(catalog.operations, "begin", change_before)

    return set_statements


def _extra(orders: Orders) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in orders.session.execute("SELECT id, extra FROM orders WHERE extra IS NOT NULL").rows]


@pytest.mark.parametrize("statement", sampled(RUN, ["update", "delete in a partition", "merge", "insert"]))
def test_a_statement_keeps_the_values_of_a_column_that_was_added_before_it_reserved_the_table(
    hive_orders: Orders, before_reservation: Callable[[tuple[str, ...]], None], statement: str
) -> None:
    text, changed = STATEMENTS[statement]
    before_reservation(COLUMN)
    hive_orders.session.execute(text.replace("id < 100", "id < 10"))
    kept = NEW if statement == "delete in a partition" else None
    assert sorted(hive_orders.rows()) == sorted(changed(ROWS | {NEW}) | ({kept} if kept else set()))
    assert _extra(hive_orders) == [(50, 777)]


def test_forgetting_keeps_the_values_of_a_column_that_was_added_before_it_reserved_the_table(
    hive_orders: Orders, before_reservation: Callable[[tuple[str, ...]], None]
) -> None:
    before_reservation(COLUMN)
    hive_orders.session.execute("CALL calve.system.forget(table => 'demo.orders', where => 'id = 1')")
    assert _extra(hive_orders) == [(50, 777)]


@pytest.mark.parametrize("statement", sampled(RUN, ["update", "insert"]))
@pytest.mark.parametrize("other", OTHERS)
def test_a_statement_is_refused_if_another_table_got_the_name_before_it_reserved_the_table(
    hive_orders: Orders, before_reservation: Callable[[tuple[str, ...]], None], statement: str, other: str
) -> None:
    text, _ = STATEMENTS[statement]
    before_reservation(OTHERS[other])
    with pytest.raises(ConflictError, match=r"another table got its name.*Run the statement again"):
        hive_orders.session.execute(text)
    assert hive_orders.rows() == [NEW]
    assert _extra(hive_orders) == [(50, 777)]
    hive_orders.session.execute(text)


def test_an_overwrite_that_selects_from_its_own_table_needs_a_value_for_a_column_that_was_added_meanwhile(
    hive_orders: Orders, before_reservation: Callable[[tuple[str, ...]], None]
) -> None:
    before_reservation(COLUMN)
    with pytest.raises(InvalidRowsError, match=r"the SELECT has 3 columns .* for 4 of"):
        hive_orders.session.execute("INSERT OVERWRITE orders SELECT id, upper(note), day FROM orders")
    assert _extra(hive_orders) == [(50, 777)]


NEW_PARTITION = "INSERT INTO orders VALUES (9, 'i', 8)"


@pytest.mark.parametrize("statement", sampled([*RUN[:-1], "overwrite by itself"], ["update"]))
def test_a_statement_writes_its_rows_again_if_the_format_of_the_table_was_changed_since_it_wrote_them(
    hive_orders: Orders, catalog: Catalog, statement: str
) -> None:
    entries, name = Entries(catalog), TableName.parse(NAME)
    hive_orders.at_publication(lambda: entries.alter_table(name, replace(entries.table(name), storage=ORC)))
    text, changed = STATEMENTS[statement]
    hive_orders.session.execute(text)
    assert sorted(hive_orders.rows()) == sorted(changed(ROWS))
    hive_orders.session.execute(NEW_PARTITION)
    assert sorted(hive_orders.rows()) == sorted(changed(ROWS) | {(9, "i", 8)})


def test_an_insert_writes_new_partitions_again_if_the_format_of_the_table_was_changed_since_it_wrote_them(
    hive_orders: Orders, catalog: Catalog
) -> None:
    entries, name = Entries(catalog), TableName.parse(NAME)
    hive_orders.at_publication(lambda: entries.alter_table(name, replace(entries.table(name), storage=ORC)))
    hive_orders.session.execute(NEW_PARTITION)
    assert sorted(hive_orders.rows()) == sorted(ROWS | {(9, "i", 8)})
