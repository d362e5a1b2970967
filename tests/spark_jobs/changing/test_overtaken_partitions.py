"""Partitions of a Hive-style table that another session drops or renames while a statement or a load changes rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog import Catalog, Partition
from catalog.errors import InvalidRowsError, PlanConflictError
from catalog.statements.session import Session
from catalog.storage.values import ValueEncoder
from spark_jobs.changing import merge_statement, row_changes
from spark_jobs.changing.concerned_partitions import refuse_missing
from tests.support.effort import sampled
from tests.support.racing_commits import CHANGES, CREATE, NAME, ROWS, STATEMENTS, Change, Orders

pytestmark = pytest.mark.spark

PARTITION = "ALTER TABLE orders PARTITION (day=1)"
OTHERS: dict[str, tuple[tuple[str, ...], Change]] = {
    "drop": (("ALTER TABLE orders DROP PARTITION (day=1)",), lambda rows: {row for row in rows if row[2] != 1}),
    "purge": (("ALTER TABLE orders DROP PARTITION (day=1) PURGE",), lambda rows: {row for row in rows if row[2] != 1}),
    "rename": (
        (f"{PARTITION} RENAME TO PARTITION (day=7)",),
        lambda rows: {(number, note, 7 if day == 1 else day) for number, note, day in rows},
    ),
    "exchange": (
        (
            f"{PARTITION} RENAME TO PARTITION (day=7)",
            "ALTER TABLE orders PARTITION (day=3) RENAME TO PARTITION (day=1)",
        ),
        lambda rows: {(number, note, {1: 7, 3: 1}.get(day, day)) for number, note, day in rows},
    ),
}
"""Name → the statements of another session, and the rows after them."""

RUN = ["delete", "delete in a partition", "update", "move", "merge", "compact", "overwrite by itself"]
CASES = [(statement, other) for statement in RUN for other in OTHERS]
SAMPLE = [("update", "purge"), ("merge", "rename"), ("overwrite by itself", "drop")]


@pytest.fixture
def run(catalog_url: str) -> Callable[[str], None]:
    """Runs what another session does, named in `OTHERS`."""

    def run_other(other: str) -> None:
        with Catalog.open(catalog_url) as opened, Session(opened, database="demo") as session:
            for text in OTHERS[other][0]:
                session.execute(text)

    return run_other


@pytest.fixture
def hive_orders(orders: Orders) -> Orders:
    """The table, Hive-style, with two files in one of its partitions."""
    orders.session.execute(f"{CREATE} STORED AS PARQUET")
    orders.create("Hive-style")
    return orders


@pytest.mark.parametrize(("statement", "other"), sampled(CASES, SAMPLE))
def test_a_statement_is_planned_again_if_another_session_drops_or_renames_a_partition_that_it_has_read(
    hive_orders: Orders, run: Callable[[str], None], statement: str, other: str
) -> None:
    (text, changed), (_, left) = STATEMENTS[statement], OTHERS[other]
    hive_orders.at_publication(lambda: run(other))
    hive_orders.session.execute(text)
    assert sorted(hive_orders.rows()) == sorted(changed(left(ROWS)))


@pytest.mark.long
@pytest.mark.parametrize("other", ["purge", "exchange"])
def test_a_load_that_merges_is_refused_if_it_was_overtaken_and_succeeds_when_it_is_run_again(
    hive_orders: Orders, run: Callable[[str], None], other: str
) -> None:
    left = OTHERS[other][1]
    hive_orders.at_publication(lambda: run(other))
    with pytest.raises(PlanConflictError, match="partition day=1 was added, dropped, renamed or moved"):
        hive_orders.change("load merge")
    assert sorted(hive_orders.rows()) == sorted(left(ROWS))
    hive_orders.change("load merge")
    assert sorted(hive_orders.rows()) == sorted(CHANGES["load merge"](left(ROWS)))


@pytest.mark.parametrize("statement", sampled(["update", "delete", "merge"], ["update"]))
def test_a_statement_follows_the_drop_of_a_partition_that_it_has_just_read(
    hive_orders: Orders, run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    (text, changed), (_, left) = STATEMENTS[statement], OTHERS["drop"]
    module, is_first = merge_statement if statement == "merge" else row_changes, iter([True])
    find = module.partitions_among

    def drop_before(*arguments: Any) -> list[Partition]:
        if next(is_first, False):
            run("drop")
        return find(*arguments)

    monkeypatch.setattr(module, "partitions_among", drop_before)
    hive_orders.session.execute(text)
    assert sorted(hive_orders.rows()) == sorted(changed(left(ROWS)))


BEFORE = ["insert", "update", "delete", "overwrite", "move"]
_OWN = "INSERT OVERWRITE orders PARTITION (day=1) SELECT id, upper(note) FROM orders WHERE day < 3"


@pytest.mark.parametrize("other", [*sampled(BEFORE, ["insert", "update"]), *OTHERS])
def test_an_overwrite_has_the_rows_of_its_own_table_that_others_have_changed_before_it_reserved_the_table(
    hive_orders: Orders, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    texts, changed = OTHERS.get(other) or ([STATEMENTS[other][0]], STATEMENTS[other][1])
    begin, is_first = row_changes._begin, iter([True])

    def change_before(*arguments: Any) -> Any:
        if next(is_first, False):
            for text in texts:
                hive_orders.session.execute(text)
        return begin(*arguments)

    monkeypatch.setattr(row_changes, "_begin", change_before)
    hive_orders.session.execute(_OWN)
    before = changed(ROWS)
    own = {(number, note and note.upper(), 1) for number, note, day in before if day < 3}
    assert sorted(hive_orders.rows()) == sorted({row for row in before if row[2] != 1} | own)


def test_only_partitions_that_are_read_as_null_may_have_values_of_another_type(
    hive_orders: Orders, catalog: Catalog
) -> None:
    table, encoder = catalog.get_table(NAME), ValueEncoder(catalog.get_table(NAME))
    with pytest.raises(InvalidRowsError, match=r"1 partition.* have a value that is not of its key's type"):
        refuse_missing(table, {encoder.identity([None]): (None,)}, [])
    with pytest.raises(PlanConflictError, match=r"partition day=1 of demo\.orders was dropped or renamed"):
        refuse_missing(table, {encoder.identity([day]): (day,) for day in (None, "1")}, [])
