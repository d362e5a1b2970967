"""The partitions that a policy compacts, against a model over all partitions; on each database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, text, update

from catalog import Catalog, NewPartition, Table
from catalog.errors import OperationConflictError
from catalog.maintenance import compaction
from catalog.maintenance.compaction import CompactionPlan, is_compacted, plan_compaction
from catalog.operations.changes import COMPACT
from catalog.operations.records import OperationKind, OperationState
from catalog.settings.compaction_rules import CompactionRules, DailyLimit
from catalog.storage.schema import DataFileRow
from tests.support.written_files import Load, hashed_table

MB = 2**20
RULES = CompactionRules(target_file_size=100, min_files=3, min_age=timedelta(hours=1))
HOUR_MS = 3_600_000


def make(catalog: Catalog, counts: list[tuple[int | None, int | None]], name: str = "demo.t") -> Table:
    """Create a table with partitions of these numbers of files and bytes, two hours old."""
    table = catalog.create_table(name, columns=[("v", "int")], partition_keys=[("k", "int")])
    catalog.add_partitions(
        name,
        [NewPartition((str(k),), file_count=files, size_bytes=size) for k, (files, size) in enumerate(counts)],
    )
    shift(catalog, "calve_partition", "created_at_ms", 2 * HOUR_MS)
    return table


def shift(catalog: Catalog, table: str, column: str, age_ms: int, where: str = "1 = 1") -> None:
    """Make the rows of a table older."""
    with catalog.storage.write() as connection:
        connection.execute(text(f"UPDATE {table} SET {column} = {column} - {age_ms} WHERE {where}"))


def plan(catalog: Catalog, table: Table, rules: CompactionRules = RULES) -> CompactionPlan:
    return plan_compaction(catalog.storage, catalog.operations, table, rules)


def names(found: CompactionPlan) -> list[str]:
    return [partition.name for partition in found.partitions]


def compacted(catalog: Catalog, table: Table, operation_id: str, size_bytes: int, partitions: int = 1) -> int:
    """Journal a compaction that has committed; return its number."""
    request = {"change": COMPACT, "partitions": partitions, "files": 9, "bytes": size_bytes}
    operation = catalog.operations.begin(operation_id, OperationKind.CHANGE_ROWS, table.full_name, request)
    with catalog.storage.write() as connection:
        for state in (OperationState.RUNNING, OperationState.COMMITTED):
            catalog.operations.advance(connection, operation_id, state)
    return operation.number


def test_partitions_with_many_small_files_are_found_those_with_most_first(catalog: Catalog) -> None:
    table = make(catalog, [(3, 30), (2, 2), (5, 5), (4, 200), (4, 199), (None, None), (3, None)])
    found = plan(catalog, table)
    assert names(found) == ["k=2", "k=4", "k=0"]
    assert (found.file_count, found.size_bytes, found.left, found.too_large) == (12, 234, 0, ())
    assert next(found.lines()) == "3 partition(s) with 12 files, 234 bytes, to compact into files of about 100 bytes"


def test_young_and_quarantined_partitions_are_left_alone(catalog: Catalog) -> None:
    table = make(catalog, [(9, 9)] * 4)
    shift(catalog, "calve_partition", "created_at_ms", -2 * HOUR_MS, "packed_values = '0'")
    with catalog.storage.write() as connection:
        connection.execute(
            text("UPDATE calve_partition SET is_quarantined = :yes WHERE packed_values = '1'"), {"yes": True}
        )
    load = catalog.operations.begin("load", OperationKind.APPEND_ROWS, "demo.t")
    with catalog.storage.write() as connection:
        connection.execute(
            text("UPDATE calve_partition SET operation_number = :number WHERE packed_values = '2'"),
            {"number": load.number},
        )
    assert names(plan(catalog, table)) == ["k=3"]
    shift(catalog, "calve_operation", "heartbeat_at_ms", 2 * HOUR_MS)
    assert names(plan(catalog, table)) == ["k=2", "k=3"]


def test_what_a_compaction_wrote_is_left_alone_until_it_changes(catalog: Catalog) -> None:
    table = make(catalog, [(9, 9)])
    number = compacted(catalog, table, "earlier", 9)
    with catalog.storage.write() as connection:
        connection.execute(text("UPDATE calve_partition SET operation_number = :number"), {"number": number})
    shift(catalog, "calve_operation", "heartbeat_at_ms", 2 * HOUR_MS)
    assert names(plan(catalog, table)) == []
    later = catalog.operations.begin("append", OperationKind.APPEND_ROWS, "demo.t")
    shift(catalog, "calve_operation", "heartbeat_at_ms", 2 * HOUR_MS, "id = 'append'")
    with catalog.storage.write() as connection:
        connection.execute(text("UPDATE calve_partition SET operation_number = :number"), {"number": later.number})
    assert names(plan(catalog, table)) == ["k=0"]


def test_the_limit_of_a_day_counts_what_was_compacted_whoever_asked(catalog: Catalog) -> None:
    table = make(catalog, [(9, 40), (8, 40), (7, 40), (6, 200)])
    rules = CompactionRules(100, 3, timedelta(hours=1), DailyLimit(size_bytes=100))
    first = plan(catalog, table, rules)
    assert (names(first), first.left, first.too_large) == (["k=0", "k=1"], 1, ("k=3",))
    assert list(first.lines())[1:] == [
        "1 more partition(s) are left to later runs: at most 100 bytes in 24 hours, and 0 bytes are done",
        "k=3 is larger than 100 bytes, the limit of a day, so it is never compacted",
    ]
    compacted(catalog, table, "by hand", 60)
    assert names(plan(catalog, table, rules)) == ["k=0"]
    assert names(plan(catalog, make(catalog, [(9, 40)], "demo.other"), rules)) == ["k=0"]
    shift(catalog, "calve_operation", "created_at_ms", 25 * HOUR_MS)
    assert names(plan(catalog, table, rules)) == ["k=0", "k=1"]
    by_count = CompactionRules(100, 3, timedelta(hours=1), DailyLimit(partitions=2))
    compacted(catalog, table, "another", 10, partitions=1)
    assert names(plan(catalog, table, by_count)) == ["k=0"]


def test_a_table_that_an_operation_holds_is_skipped_and_the_operation_named(catalog: Catalog) -> None:
    table = make(catalog, [(9, 9)])
    catalog.operations.begin("a load", OperationKind.APPEND_ROWS, "demo.t", is_exclusive=True)
    with catalog.storage.read() as connection, pytest.raises(OperationConflictError):
        catalog.operations.refuse_if_held(connection, "demo.t")
    found = plan(catalog, table)
    assert names(found) == []
    (line,) = found.lines()
    assert line.startswith("skipped: table demo.t: operation a load (append_rows, PLANNED) is running on it")


def test_only_tables_with_partitions_of_calve_are_compacted(catalog: Catalog) -> None:
    assert is_compacted(make(catalog, []))
    assert not is_compacted(catalog.create_table("demo.flat", columns=[("v", "int")]))
    assert not is_compacted(catalog.create_view("demo.view", "SELECT 1"))


def test_partitions_of_schemes_are_counted_by_their_files(catalog: Catalog) -> None:
    table = hashed_table(catalog)
    for number in range(4):
        Load(catalog, table, f"load {number}").begin().write().commit()
    shift(catalog, "calve_operation", "heartbeat_at_ms", 2 * HOUR_MS)
    counts = {
        str(partition.id): partition.file_count
        for partition in catalog.scheme_partitions(table.full_name)
        if partition.file_count >= 3
    }
    rules = CompactionRules(target_file_size=MB, min_files=3)
    assert {each.name: each.file_count for each in plan(catalog, table, rules).partitions} == counts
    assert counts
    shift(catalog, "calve_operation", "heartbeat_at_ms", -2 * HOUR_MS, "id = 'load 3'")
    assert len(plan(catalog, table, rules).partitions) < len(counts)


def test_files_of_one_compaction_are_left_alone_and_others_beside_them_are_not(catalog: Catalog) -> None:
    table = hashed_table(catalog)
    for number in range(4):
        Load(catalog, table, f"load {number}").begin().write().commit()
    rules, number = CompactionRules(target_file_size=MB, min_files=3), compacted(catalog, table, "earlier", 9)
    shift(catalog, "calve_operation", "heartbeat_at_ms", 2 * HOUR_MS)
    before = names(plan(catalog, table, rules))
    assert before
    with catalog.storage.write() as connection:
        connection.execute(update(DataFileRow).values(operation_number=number))
    assert names(plan(catalog, table, rules)) == []
    first = select(func.min(DataFileRow.id)).group_by(DataFileRow.partition_id)
    with catalog.storage.write() as connection:
        connection.execute(update(DataFileRow).where(DataFileRow.id.in_(first)).values(operation_number=number - 1))
    assert names(plan(catalog, table, rules)) == before


def test_a_plan_has_at_most_a_number_of_partitions(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MOST", 2)
    found = plan(catalog, make(catalog, [(9, 9)] * 5))
    assert (len(found.partitions), found.left) == (2, 3)


_COUNTS = st.tuples(st.none() | st.integers(0, 8), st.none() | st.integers(0, 500))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(_COUNTS, max_size=12), st.integers(2, 6), st.integers(1, 200), st.none() | st.integers(1, 800))
def test_plans_are_those_of_a_model(
    catalog: Catalog, counts: list[tuple[int | None, int | None]], least: int, target: int, limit: int | None
) -> None:
    rules = CompactionRules(target, least, timedelta(hours=1), DailyLimit(size_bytes=limit))
    found = plan(catalog, make(catalog, counts, f"demo.t{len(catalog.list_tables())}"), rules)
    small = [
        (files, size, k)
        for k, (files, size) in enumerate(counts)
        if files is not None and size is not None and files >= least and 2 * size < files * target
    ]
    chosen, left = [], limit
    for files, size, k in sorted(small, key=lambda each: (-each[0], each[2])):
        if left is None or size <= left:
            chosen.append((files, size, f"k={k}"))
            left = None if left is None else left - size
    assert [(each.file_count, each.size_bytes, each.name) for each in found.partitions] == chosen
    never = [f"k={k}" for _, size, k in small if limit is not None and size > limit]
    assert sorted(found.too_large) == sorted(never)
    assert found.left == len(small) - len(chosen) - len(never)
    assert limit is None or found.size_bytes <= limit
