"""Questions of those who wait for partitions, compared with a look at each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from catalog import Catalog, IndexDefinition, NewPartition, PartitionState, Table
from catalog.errors import CatalogError, ExpressionError, InvalidPartitionSpecError, TableNotFoundError
from catalog.loading.quality_lists import QualityState
from catalog.operations.records import OperationKind, OperationState
from catalog.partitions import waiting
from catalog.partitions.awaited import AwaitedPartitions, AwaitedState, QualityDemand
from catalog.partitions.changing import set_quarantined
from catalog.settings.quality_rules import FailedCheck, PartitionCheck
from tests.support.effort import effort
from tests.support.iceberg_tables import sql_catalog
from tests.support.partition_files import append

TABLE = "demo.t"
_OPERATIONS = count()


@pytest.fixture
def table(catalog: Catalog) -> Table:
    created = catalog.create_table(
        TABLE,
        columns=[("v", "int")],
        partition_keys=[("country", "string"), ("day", "int")],
        indexes=[IndexDefinition("by_day", ("day",))],
    )
    add(catalog, ("DE", "1"), ("US", "1"))
    return created


def add(catalog: Catalog, *values: tuple[str, str]) -> None:
    catalog.add_partitions(TABLE, [NewPartition(value) for value in values])


def ids(catalog: Catalog, *values: tuple[str, str]) -> list[int]:
    return [catalog.get_partition(TABLE, value).id for value in values]


def hide(catalog: Catalog, table: Table, *values: tuple[str, str]) -> None:
    with catalog.storage.write() as connection:
        set_quarantined(connection, table, ids(catalog, *values), True)


def check(catalog: Catalog, passed: bool, *values: tuple[str, str]) -> None:
    """Record quality checks of partitions; those that pass are not released, because no load added them."""
    name = f"check-{next(_OPERATIONS)}"
    catalog.operations.begin(name, OperationKind.ADD_PARTITIONS, TABLE)
    attempt = catalog.operations.start_job(name, "check_quality")
    failures = () if passed else (FailedCheck("row_count", "0", "1 or more"),)
    checks = [PartitionCheck(number, failures) for number in ids(catalog, *values)]
    counts = {"checked": len(checks), "passed": passed * len(checks), "failed": (not passed) * len(checks)}
    report = {**counts, "failures": [], "docs_path": None}
    catalog.quality.record(name, "check_quality", attempt, checks, report)


def look(catalog: Catalog, question: AwaitedPartitions) -> AwaitedState | CatalogError:
    return catalog.waits.look([question])[question]


def named(catalog: Catalog, *partitions: Any, quality: QualityDemand = QualityDemand.IF_CHECKED) -> Any:
    return look(catalog, catalog.waits.question(TABLE, partitions, quality=quality))


@pytest.mark.smoke
def test_partitions_are_named_by_path_by_keys_and_by_values(catalog: Catalog, table: Table) -> None:
    assert named(catalog, "country=DE/day=1", {"DAY": 1, "country": "US"}) == AwaitedState(2, ready=2)
    assert named(catalog, ("DE", 2), ["DE", "01"]) == AwaitedState(2, ready=1, missing=1)
    assert str(named(catalog, ("DE", 2), ["DE", "01"])) == "1 of 2 partition(s) ready: 1 missing"
    question = catalog.waits.question(TABLE, [("DE", 1), "day=1/country=DE"])
    assert question.names == ("country=DE/day=1",)
    assert AwaitedPartitions.from_json(question.as_json()) == question


@pytest.mark.smoke
def test_quality_is_demanded_or_not(catalog: Catalog, table: Table) -> None:
    add(catalog, ("DE", "2"), ("DE", "3"), ("DE", "4"))
    check(catalog, True, ("DE", "1"))
    check(catalog, False, ("DE", "2"))
    hide(catalog, table, ("DE", "3"))
    partitions = [("DE", day) for day in range(1, 6)]
    expected = {
        QualityDemand.REQUIRED: AwaitedState(5, ready=1, missing=1, hidden=1, failed=1, unchecked=1),
        QualityDemand.IF_CHECKED: AwaitedState(5, ready=2, missing=1, hidden=1, failed=1),
        QualityDemand.IGNORED: AwaitedState(5, ready=3, missing=1, hidden=1),
    }
    for demand, state in expected.items():
        assert named(catalog, *partitions, quality=demand) == state
        question = catalog.waits.question(TABLE, expression="country = 'DE'", at_least=5, quality=demand)
        assert look(catalog, question) == state
    check(catalog, True, ("DE", "2"))
    assert named(catalog, ("DE", 2), quality=QualityDemand.REQUIRED).is_ready


@pytest.mark.smoke
def test_a_release_with_a_reason_is_a_verdict_until_the_next_check(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_REST", 0)
    add(catalog, ("DE", "2"), ("DE", "3"))
    partitions = [("DE", "2"), ("DE", "3")]
    check(catalog, False, *partitions)
    hide(catalog, table, *partitions)
    required = catalog.waits.question(TABLE, partitions, quality=QualityDemand.REQUIRED)
    searched = catalog.waits.question(TABLE, expression="day in (2, 3)", at_least=2, quality=QualityDemand.REQUIRED)
    assert look(catalog, required) == look(catalog, searched) == AwaitedState(2, hidden=2)
    catalog.release_partitions(TABLE, "day = 2")
    assert look(catalog, required) == AwaitedState(2, hidden=1, failed=1)
    catalog.release_partitions(TABLE, "day = 3", reason="looked at", requested_by="ann")
    assert look(catalog, required) == look(catalog, searched) == AwaitedState(2, ready=1, failed=1)
    check(catalog, False, ("DE", "3"))
    assert look(catalog, required) == AwaitedState(2, failed=2)


def test_a_release_with_a_reason_is_a_verdict_on_partitions_that_were_never_checked(
    catalog: Catalog, table: Table
) -> None:
    hide(catalog, table, ("DE", "1"), ("US", "1"))
    required = catalog.waits.question(TABLE, [("DE", "1"), ("US", "1")], quality=QualityDemand.REQUIRED)
    chosen = ids(catalog, ("DE", "1"))
    catalog.release_partitions(TABLE, ids=chosen, reason="looked at", requested_by="ann")
    assert look(catalog, required) == AwaitedState(2, ready=1, hidden=1)
    (released,) = catalog.quality.list_partitions([QualityState.RELEASED])
    assert (released.id, released.released_by, released.release_reason, released.failures) == (
        *chosen,
        "ann",
        "looked at",
        (),
    )
    check(catalog, False, ("DE", "1"))
    assert look(catalog, required) == AwaitedState(2, failed=1, hidden=1)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("country=DE", "country, day.*day has no value"),
        ("DE/1", "'DE/1' of demo.t is not written as country=…/day=…"),
        ("country=DE/day=1/day=2", "name each key once"),
        ("country=DE/year=1", "year is not a partition key of demo.t; its keys are country, day"),
        (("DE",), "needs a value for each of its keys \\(country, day\\)"),
        (7, "7 of demo.t needs a value"),
        (("DE", 1.5), "1.5 for demo.t is a float"),
    ],
)
def test_partitions_that_are_not_named_by_all_keys_are_refused(
    catalog: Catalog, table: Table, partition: Any, message: str
) -> None:
    with pytest.raises(InvalidPartitionSpecError, match=message):
        catalog.waits.question(TABLE, [partition])


def test_what_has_no_partitions_is_refused(catalog: Catalog, table: Table) -> None:
    with pytest.raises(InvalidPartitionSpecError, match=r"no partition of demo.t is named"):
        catalog.waits.question(TABLE, [])
    with pytest.raises(ExpressionError):
        catalog.waits.question(TABLE, expression="year = 2024")
    with pytest.raises(TableNotFoundError, match=r"demo.none"):
        catalog.waits.question("demo.none", ["day=1"])
    catalog.create_table("demo.plain", columns=[("v", "int")])
    with pytest.raises(InvalidPartitionSpecError, match=r"demo.plain has no partition keys"):
        catalog.waits.question("demo.plain", ["day=1"])


def test_times_name_the_partition_of_their_day_or_of_their_time_in_utc(catalog: Catalog) -> None:
    catalog.create_table("demo.days", columns=[("v", "int")], partition_keys=[("day", "date")])
    catalog.create_table("demo.times", columns=[("v", "int")], partition_keys=[("at", "timestamp")])
    at = datetime(2024, 5, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    for value in (at, at.astimezone(UTC).replace(tzinfo=None)):
        for partition in ([value], {"day": value}):
            assert catalog.waits.question("demo.days", [partition]).names == ("day=2024-05-01",)
        for partition in ([value], {"at": value}):
            assert catalog.waits.question("demo.times", [partition]).names == ("at=2024-05-01 00%3A00%3A00",)


@pytest.mark.smoke
def test_a_table_that_was_dropped_or_changed_is_told_and_the_others_are_answered(
    catalog: Catalog, table: Table
) -> None:
    catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("day", "int")])
    questions = [
        catalog.waits.question("demo.other", ["day=1"]),
        catalog.waits.question("demo.other", expression="day = 1"),
        catalog.waits.question(TABLE, ["country=DE/day=1"]),
    ]
    assert [answer.is_ready for answer in catalog.waits.look(questions).values()] == [False, False, True]  # type: ignore[union-attr]
    catalog.drop_table("demo.other")
    catalog.create_table("demo.other", columns=[("v", "int")], partition_keys=[("hour", "int")])
    by_name, by_filter, other = catalog.waits.look(questions).values()
    assert isinstance(by_name, InvalidPartitionSpecError)
    assert isinstance(by_filter, ExpressionError)
    assert other == AwaitedState(1, ready=1)
    catalog.drop_table("demo.other")
    assert [type(answer) for answer in catalog.waits.look(questions).values()] == [
        TableNotFoundError,
        TableNotFoundError,
        AwaitedState,
    ]


@pytest.fixture
def statements(catalog: Catalog) -> list[str]:
    recorded: list[str] = []
    for engine in {catalog.storage.engine, catalog.storage._alone}:
        event.listen(engine, "before_cursor_execute", lambda *values: recorded.append(values[2]))
    return recorded


@pytest.mark.smoke
def test_many_questions_need_few_statements_and_nothing_is_kept_of_former_ones(
    catalog: Catalog, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        catalog.create_table(f"demo.t{number}", columns=[("v", "int")], partition_keys=[("day", "int")])
    questions = [
        catalog.waits.question(f"demo.t{number % 20}", [f"day={number}"])
        if number % 2
        else catalog.waits.question(f"demo.t{number % 20}", expression=f"day = {number}")
        for number in range(500)
    ]
    memory = catalog.waits._memory
    # On a busy machine, searches take so long that they would have to wait.
    monkeypatch.setattr(waiting, "_REST", 0)
    monkeypatch.setattr(waiting, "_SEARCH_SECONDS", 600)
    catalog.waits.look(questions)
    statements.clear()
    catalog.waits.look(questions)
    assert sum(statement.startswith("SELECT") for statement in statements) == 2
    catalog.add_partitions("demo.t3", [NewPartition(("3",))])
    catalog.add_partitions("demo.t4", [NewPartition(("4",))])
    ready = [question for question, state in catalog.waits.look(questions).items() if state.is_ready]  # type: ignore[union-attr]
    assert ready == [questions[3], questions[4]]
    monkeypatch.setattr(waiting, "_FORGOTTEN_SECONDS", 0)
    catalog.waits.look(questions[:2])
    assert [len(kept) for kept in (memory.tables, memory.identities, memory.searches)] == [2, 1, 1]


def test_a_search_is_not_repeated_before_something_has_changed(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[Any] = []
    search = waiting.PartitionWaits._search

    def record(waits: Any, *arguments: Any) -> Any:
        searches.append(arguments)
        return search(waits, *arguments)

    monkeypatch.setattr(waiting.PartitionWaits, "_search", record)
    monkeypatch.setattr(waiting, "_REST", 0)
    question = catalog.waits.question(TABLE, expression="day = 1", at_least=3)
    twin = catalog.waits.question(TABLE, expression="day = 1", at_least=4)
    for _ in range(3):
        assert [state.missing for state in catalog.waits.look([question, twin]).values()] == [1, 2]  # type: ignore[union-attr]
    assert len(searches) == 1
    add(catalog, ("FR", "1"))
    hide(catalog, table, ("FR", "1"))
    assert look(catalog, question) == AwaitedState(3, ready=2, hidden=1)
    look(catalog, question)
    assert len(searches) == 2
    catalog.release_partitions(TABLE)
    assert look(catalog, question) == AwaitedState(3, ready=3)
    assert len(searches) == 3
    monkeypatch.setattr(waiting, "_SEARCH_SECONDS", -1)
    assert look(catalog, twin) == AwaitedState(4, ready=3, missing=1)
    other = catalog.waits.question(TABLE, expression="day = 2")
    assert look(catalog, other) == AwaitedState(1, missing=1)
    monkeypatch.setattr(waiting, "_REPEAT_SECONDS", 0)
    monkeypatch.setattr(waiting, "_SEARCH_SECONDS", 60)
    catalog.alter_partition(TABLE, ("FR", "1"), rename_to=("FR", "2"))
    assert look(catalog, other) == AwaitedState(1, ready=1)


def test_callers_in_turn_get_all_their_questions_answered(
    catalog: Catalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = waiting.PartitionWaits._search

    def search_slowly(waits: Any, *arguments: Any) -> Any:
        time.sleep(0.2)
        return search(waits, *arguments)

    # A call has time for one search only.
    monkeypatch.setattr(waiting.PartitionWaits, "_search", search_slowly)
    monkeypatch.setattr(waiting, "_SEARCH_SECONDS", 0.15)
    questions = [catalog.waits.question(TABLE, expression=f"day = {day}") for day in (5, 4, 3, 2, 1)]
    other = catalog.waits.question(TABLE, expression="country = 'DE'")
    for _ in range(40):
        if catalog.waits.look(questions)[questions[-1]].is_ready:  # type: ignore[union-attr]
            break
        catalog.waits.look([other])
    else:
        pytest.fail("the partition of day 1 is never searched")


def test_partitions_that_another_engine_adds_are_noticed(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [("origin", "string"), ("month", "int")]
    catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=keys, format="iceberg")
    append(catalog, "first", TABLE, {("JFK", "1"): [1]})
    by_name = catalog.waits.question(TABLE, ["origin=LGA/month=1"])
    by_filter = catalog.waits.question(TABLE, expression="month = 1", at_least=2)
    assert [state.is_ready for state in catalog.waits.look([by_name, by_filter]).values()] == [False, False]  # type: ignore[union-attr]
    schema = pa.schema([("v", pa.int32()), ("origin", pa.string()), ("month", pa.int32())])
    with sql_catalog(catalog_url) as iceberg:
        iceberg.load_table(TABLE).append(pa.Table.from_pylist([{"v": 2, "origin": "LGA", "month": 1}], schema))
    monkeypatch.setattr(waiting, "_REST", 0)
    assert [state.is_ready for state in catalog.waits.look([by_name, by_filter]).values()] == [True, True]  # type: ignore[union-attr]


VALUES = [(country, str(day)) for country in ("DE", "US", "FR") for day in range(3)]
steps = st.lists(
    st.tuples(st.sampled_from(("add", "drop", "hide", "release", "pass", "fail")), st.sampled_from(VALUES)),
    min_size=1,
    max_size=12,
)


@given(steps)
@settings(max_examples=effort(8, 50), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_each_answer_is_that_of_a_look_at_all_partitions(
    catalog: Catalog, steps: Sequence[tuple[str, tuple[str, str]]]
) -> None:
    with suppress(TableNotFoundError):
        catalog.drop_table(TABLE)
    table = catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("country", "string"), ("day", "int")])
    questions = [
        question
        for demand in QualityDemand
        for question in (
            catalog.waits.question(TABLE, [("DE", 1), ("US", 1)], quality=demand),
            catalog.waits.question(TABLE, expression="day = 1", at_least=2, quality=demand),
            catalog.waits.question(TABLE, expression="day >= 1 and country != 'FR'", at_least=3, quality=demand),
        )
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "_REST", 0)
        for step, value in steps:
            apply(catalog, table, step, value)
            for question, state in catalog.waits.look(questions).items():
                assert isinstance(state, AwaitedState)
                assert state.is_ready == is_ready(catalog, question), (question, state)


def apply(catalog: Catalog, table: Table, step: str, value: tuple[str, str]) -> None:
    exists = any(partition.values == value for partition in catalog.get_partitions(TABLE, state=None))
    if step == "add":
        catalog.add_partitions(TABLE, [NewPartition(value)], if_not_exists=True)
    elif step == "release":
        catalog.release_partitions(TABLE, f"day = {value[1]}")
    elif exists and step == "drop":
        catalog.drop_partition(TABLE, {"country": value[0], "day": value[1]})
    elif exists and step == "hide":
        hide(catalog, table, value)
    elif exists:
        check(catalog, step == "pass", value)


def is_ready(catalog: Catalog, question: AwaitedPartitions) -> bool:
    """Return the answer of a look at each partition."""
    partitions = list(catalog.get_partitions(TABLE, question.expression, state=None, use_indexes=False))
    if question.names:
        partitions = [partition for partition in partitions if partition.values in (("DE", "1"), ("US", "1"))]
    if len(partitions) < question.at_least or any(p.state is PartitionState.QUARANTINED for p in partitions):
        return False
    checks = [catalog.quality.get(partition.id) for partition in partitions]
    if question.quality is QualityDemand.IGNORED:
        return True
    return all(check.passed if check else question.quality is QualityDemand.IF_CHECKED for check in checks)


def test_states_of_operations_are_read_together(catalog: Catalog, statements: list[str]) -> None:
    for name in ("a", "b"):
        catalog.operations.begin(name, OperationKind.ADD_PARTITIONS, TABLE)
    catalog.operations.fail("b", "RUN_FAILED", "it failed")
    statements.clear()
    states = catalog.operations.get_states(["a", "b", "c"])
    assert states == {"a": OperationState.PLANNED, "b": OperationState.FAILED}
    assert sum(statement.startswith("SELECT") for statement in statements) == 1
