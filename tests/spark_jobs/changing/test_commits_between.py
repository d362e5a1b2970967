"""Commits of another engine between the reading and the publication of a change: the rows equal a serial order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, Partition
from catalog.errors import ConflictError, FencedError, PlanConflictError
from catalog.operations.records import OperationState
from catalog.statements.session import Session
from spark_jobs.changing import merge_statement, row_changes
from tests.support.effort import sampled
from tests.support.partition_files import check_partitions
from tests.support.racing_commits import (
    BETWEEN,
    COMMITS,
    KINDS,
    NAME,
    ROWS,
    STATEMENTS,
    TAKE_BACK,
    Orders,
    append,
    merged,
)

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Loader

pytestmark = pytest.mark.spark

CASES = [(kind, statement, commit) for kind in KINDS for statement in STATEMENTS for commit in BETWEEN]
SAMPLE = [("stored as Iceberg", "delete", "append"), ("range", "update", TAKE_BACK)]


@pytest.mark.parametrize(("kind", "statement", "commit"), sampled(CASES, SAMPLE))
def test_rows_equal_a_serial_order_of_the_statement_and_the_commit(
    orders: Orders, catalog: Catalog, kind: str, statement: str, commit: str
) -> None:
    (text, changed), (run, committed) = STATEMENTS[statement], COMMITS[commit]
    orders.create(kind)
    orders.prepare(commit)
    orders.commit_between(run, 1)
    serial = [committed(changed(ROWS)), changed(committed(ROWS))]
    try:
        orders.session.execute(text)
    except ConflictError:
        serial = [committed(ROWS)]
    found = orders.rows()
    assert len(found) == len(set(found))
    assert set(found) in serial
    if kind == "stored as Iceberg":
        check_partitions(catalog, NAME)


@pytest.mark.long
@pytest.mark.parametrize("statement", ["delete", "update", "merge"])
def test_a_statement_follows_the_deletion_of_a_partition_that_it_has_just_read(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    (text, changed), (run, committed) = STATEMENTS[statement], COMMITS["delete a partition"]
    module, left = merge_statement if statement == "merge" else row_changes, iter([True])
    find = module.partitions_among

    def delete_before(*arguments: Any) -> list[Partition]:
        if next(left, False):
            orders.commit(run)
        return find(*arguments)

    orders.create("stored as Iceberg")
    monkeypatch.setattr(module, "partitions_among", delete_before)
    orders.session.execute(text)
    assert set(orders.rows()) == changed(committed(ROWS))


@pytest.mark.parametrize("statement", sampled(["delete", "update", "merge", "compact"], ["update"]))
def test_a_statement_on_a_table_with_a_scheme_is_made_again_over_the_rows_of_a_commit(
    orders: Orders, statement: str
) -> None:
    (text, changed), (run, committed) = STATEMENTS[statement], COMMITS["delete a row"]
    orders.create("range")
    orders.commit_between(run, 1)
    orders.session.execute(text)
    assert set(orders.rows()) == changed(committed(ROWS))


def test_a_statement_keeps_values_in_columns_that_an_engine_has_added_meanwhile(orders: Orders) -> None:
    (text, changed), (run, committed) = STATEMENTS["move"], COMMITS["change columns"]
    orders.create("stored as Iceberg")
    orders.commit_between(run, 1)
    orders.session.execute(text)
    assert set(orders.rows()) == changed(committed(ROWS))


@pytest.mark.long
def test_a_statement_that_is_overtaken_again_and_again_is_refused_with_nothing_changed(orders: Orders) -> None:
    numbers = iter(range(100, 200))
    orders.create("stored as Iceberg")
    orders.commit_between(lambda table: append((next(numbers), "a", 1))(table), 99)
    with pytest.raises(PlanConflictError, match="Run the statement or load again"):
        orders.session.execute("DELETE FROM orders WHERE note = 'a'")
    added = next(numbers) - 100
    assert set(orders.rows()) == ROWS | {(100 + number, "a", 1) for number in range(added)}


@pytest.mark.long
def test_appends_to_other_partitions_do_not_overtake_a_statement(orders: Orders) -> None:
    numbers = iter(range(100, 200))
    orders.create("stored as Iceberg")
    orders.commit_between(lambda table: append((next(numbers), "a", 2))(table), 99)
    orders.session.execute("DELETE FROM orders WHERE day = 1 AND note = 'a'")
    assert next(numbers) == 101
    assert set(orders.rows()) == (ROWS - {(1, "a", 1)}) | {(100, "a", 2)}


@pytest.mark.long
def test_a_load_that_merges_is_refused_if_it_was_overtaken_and_succeeds_when_it_is_run_again(
    orders: Orders, catalog: Catalog, make_loader: Callable[..., Loader], tmp_path: Path
) -> None:
    orders.create("stored as Iceberg")
    loader, source = make_loader(NAME, {"day": "int"}), tmp_path / "source"
    source.mkdir()
    (source / "a.csv").write_text("id,note,day\n1,new,1\n6,new,1\n")
    merge = {"keys": ["day", "id"]}
    orders.commit_between(append((8, "b", 1)), 1)
    with pytest.raises(PlanConflictError, match="added rows that this change may concern"):
        loader.load(source, mode="merge", merge=merge)
    assert set(orders.rows()) == ROWS | {(8, "b", 1)}
    loader.load(source, mode="merge", merge=merge)
    assert set(orders.rows()) == merged(ROWS) | {(8, "b", 1)}
    check_partitions(catalog, NAME)


@pytest.mark.long
@pytest.mark.parametrize("is_given_up", [False, True])
def test_another_process_of_calve_and_an_update_by_scheme_lose_no_row(
    orders: Orders, catalog: Catalog, catalog_url: str, is_given_up: bool
) -> None:
    text, updated = STATEMENTS["update"]
    refusals: list[ConflictError] = []

    def delete() -> None:
        if is_given_up:
            (running,) = (one for one in catalog.operations.list(NAME) if one.state is OperationState.RUNNING)
            catalog.operations.fail(running.id, "CANCELLED", "given up by a person")
        with Catalog.open(catalog_url) as other, Session(other, database="demo") as session:
            try:
                session.execute("DELETE FROM orders WHERE day = 2")
            except ConflictError as error:
                refusals.append(error)

    orders.create("range")
    orders.at_publication(delete)
    if is_given_up:
        with pytest.raises(FencedError):
            orders.session.execute(text)
        assert (refusals, set(orders.rows())) == ([], {row for row in ROWS if row[2] != 2})
    else:
        orders.session.execute(text)
        assert [(error.retryable, "is running on it" in str(error)) for error in refusals] == [(True, True)]
        assert set(orders.rows()) == updated(ROWS)
