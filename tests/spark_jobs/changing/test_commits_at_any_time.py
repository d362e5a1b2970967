"""Commits of another engine at any time of a statement or load: the rows equal a serial order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog
from catalog.errors import ConflictError
from tests.support.effort import sampled
from tests.support.partition_files import check_partitions
from tests.support.racing_commits import (
    CHANGES,
    COMMITS,
    KINDS,
    LOADS,
    NAME,
    OF_ENGINE,
    ROWS,
    SPARK_COMMITS,
    Change,
    Orders,
    Row,
)
from tests.support.rest_server import rest_server
from tests.support.spark_engine import rest_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Delete operation did not match")]

LAST = 16
"""A statement or load has about so many transactions."""
POINTS = 100
"""The number of random points, on each database."""
BY_SPARK = ("delete", "update", "merge", "compact", "overwrite by itself", "insert", "load merge")
"""The changes beside which Spark commits through the REST door."""


def kind_for(change: str, number: int) -> str:
    """Return a kind of table, of those that a change works on."""
    # Files are not loaded into tables whose files the catalog does not record.
    kinds = [kind for kind in (*KINDS, OF_ENGINE) if change not in LOADS or kind not in ("migrated", OF_ENGINE)]
    return kinds[number % len(kinds)]


def run_beside(orders: Orders, change: str, committed: Change, settle: Callable[[], object]) -> list[set[Row]]:
    """Run a change beside a commit, and again if it is refused; return the rows of the serial orders that are left.

    Args:
        settle: Returns when the commit is made.
    """
    changed = CHANGES[change]
    try:
        orders.change(change)
        settle()
        return [committed(changed(ROWS)), changed(committed(ROWS))]
    except ConflictError as error:
        if not error.retryable:
            raise
        settle()
        assert set(orders.rows()) == committed(ROWS)
        orders.change(change)
        return [changed(committed(ROWS))]


def check(orders: Orders, catalog: Catalog, kind: str, serial: list[set[Row]]) -> None:
    """Check that the rows are those of a serial order, and that the catalog is in step with them."""
    found = orders.rows()
    assert len(found) == len(set(found))
    assert set(found) in serial
    if kind == "stored as Iceberg":
        check_partitions(catalog, NAME)


def paired(changes: Iterable[str], commits: Iterable[str], moments: Sequence[Any]) -> list[tuple[str, str, str, Any]]:
    """Return each change with each commit at each moment; the kinds of tables take turns."""
    pairs = itertools.product(changes, commits, moments)
    return [(kind_for(pair[0], number // len(moments) + number), *pair) for number, pair in enumerate(pairs)]


@pytest.mark.long
@pytest.mark.parametrize("seed", sampled(range(POINTS), [0]))
def test_rows_equal_a_serial_order_of_a_change_and_a_commit_at_a_random_point(
    orders: Orders, catalog: Catalog, seed: int
) -> None:
    random = Random(seed)
    change, commit = random.choice(list(CHANGES)), random.choice(list(COMMITS))
    kind = kind_for(change, random.randrange(6))
    orders.create(kind)
    orders.prepare(commit)
    beside = Thread(target=orders.commit, args=(COMMITS[commit][0],))
    act = beside.start if random.random() < 0.5 else beside.run
    transactions = orders.at_transaction(random.randint(1, LAST), act)

    def settle() -> None:
        transactions.finish()
        if beside.ident is not None:
            beside.join()

    check(orders, catalog, kind, run_beside(orders, change, COMMITS[commit][1], settle))


@pytest.mark.long
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("kind", "change", "commit", "number"), paired(BY_SPARK, SPARK_COMMITS, (2, 4, 6, 9)))
def test_rows_equal_a_serial_order_of_a_change_and_a_commit_by_spark_through_the_rest_door(
    orders: Orders,
    catalog: Catalog,
    iceberg_spark: SparkSession,
    kind: str,
    change: str,
    commit: str,
    number: int,
) -> None:
    statements, committed = SPARK_COMMITS[commit]
    orders.create(kind)
    with rest_server(catalog) as address:
        lake = rest_session(iceberg_spark, address)
        transactions = orders.at_transaction(number, lambda: [lake.sql(text).collect() for text in statements])
        serial = run_beside(orders, change, committed, transactions.finish)
    check(orders, catalog, kind, serial)
