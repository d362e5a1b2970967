"""The history of quality checks is bounded, and lists are read page by page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import func, select, update

from catalog import Catalog, NewPartition, PartitionState
from catalog.cli.main import main
from catalog.errors import InvalidConfigurationError, PageNotFoundError, TableNotFoundError
from catalog.loading import quality_results
from catalog.loading.quality_pages import QualityPages
from catalog.operations.records import OperationKind
from catalog.settings.quality_rules import FailedCheck, FailedSample, PartitionCheck
from catalog.storage.schema import FailedSampleRow, QualityCheckRow

FAILED = FailedCheck("rows", "0", "at least 1")
SAMPLE = FailedSample("rows", ("id", "amount"), (("7", None), ("8", "-1")))
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def tables(catalog: Catalog) -> tuple[str, ...]:
    catalog.create_database("shop")
    names = ("shop.orders", "shop.visits", "shop.views")
    for name in names:
        catalog.create_table(name, columns=[("id", "int")], partition_keys=[("day", "int")])
        catalog.add_partitions(name, [NewPartition((str(day),)) for day in range(5)])
    return names


def record(
    catalog: Catalog,
    table: str,
    name: str,
    *,
    failed: int = 0,
    page: str | None = None,
    samples: tuple[FailedSample, ...] = (),
) -> int:
    """Record a check of all partitions of a table, of which the first fail; return the operation's number."""
    operation = catalog.operations.begin(name, OperationKind.ADD_PARTITIONS, table)
    partitions = sorted(catalog.get_partitions(table, state=None), key=lambda partition: partition.id)
    checks = [
        PartitionCheck(
            partition.id, (FAILED,) if place < failed else (), {"row_count": place}, samples if place < failed else ()
        )
        for place, partition in enumerate(partitions)
    ]
    counts = {"checked": len(checks), "passed": len(checks) - failed, "failed": failed, "row_count": 10}
    report = {**counts, "failures": ["day=0: rows: 0"] * failed, "docs_path": page}
    with catalog.operations.attempt(name, "check_quality") as attempt:
        catalog.quality.record(name, "check_quality", attempt, checks, report)
    catalog.operations.fail(name, "TEST", "frees the table")
    return operation.number


def age(catalog: Catalog, number: int, milliseconds: int) -> None:
    changed = {"checked_at_ms": QualityCheckRow.checked_at_ms - milliseconds}
    with catalog.storage.write() as connection:
        connection.execute(update(QualityCheckRow).where(QualityCheckRow.operation_number == number).values(changed))


def test_history_of_a_table_is_newest_first_and_read_in_parts(catalog: Catalog, tables: tuple[str, ...]) -> None:
    numbers = [record(catalog, tables[0], f"run {day}", failed=day) for day in range(3)]
    record(catalog, tables[1], "other")
    for day, number in enumerate(numbers):
        age(catalog, number, (3 - day) * 1000)
    first = catalog.quality.history(tables[0], limit=2)
    assert [check.operation_number for check in first] == numbers[:0:-1]
    assert [(check.checked, check.passed, check.failed, check.row_count) for check in first] == [
        (5, 3, 2, 10),
        (5, 4, 1, 10),
    ]
    assert (first[0].table, first[0].operation_id, len(first[0].failures)) == ("shop.orders", "run 2", 2)
    (last,) = catalog.quality.history(tables[0], limit=2, before_ms=first[-1].checked_at_ms)
    assert (last.operation_number, last.failed) == (numbers[0], 0)
    with pytest.raises(TableNotFoundError):
        catalog.quality.history("shop.none")


def samples_of(catalog: Catalog, table: str) -> dict[str | None, tuple[FailedSample, ...]]:
    partitions = {partition.id: partition.values[0] for partition in catalog.get_partitions(table, state=None)}
    return {partitions[number]: samples for number, samples in catalog.quality.samples(list(partitions)).items()}


def test_samples_are_of_the_latest_check_of_partitions_that_exist(catalog: Catalog, tables: tuple[str, ...]) -> None:
    for table in tables[:2]:
        record(catalog, table, f"first {table}", failed=2, samples=(SAMPLE, SAMPLE))
    assert samples_of(catalog, tables[0]) == {"0": (SAMPLE, SAMPLE), "1": (SAMPLE, SAMPLE)}
    catalog.drop_partition(tables[0], {"day": "1"})
    assert samples_of(catalog, tables[0]) == {"0": (SAMPLE, SAMPLE)}
    record(catalog, tables[0], "second", failed=1, samples=(SAMPLE,))
    assert samples_of(catalog, tables[0]) == {"0": (SAMPLE,)}
    record(catalog, tables[0], "third")
    assert samples_of(catalog, tables[0]) == {}
    assert len(samples_of(catalog, tables[1])) == 2


def test_samples_go_with_the_pages_of_checks_or_with_the_rows(catalog: Catalog, tables: tuple[str, ...]) -> None:
    for table in tables:
        record(catalog, table, f"check {table}", failed=1, samples=(SAMPLE,))
    with catalog.storage.write() as connection:
        old = FailedSampleRow.checked_at_ms - 2 * DAY_MS
        ids = [partition.id for partition in catalog.get_partitions(tables[0], state=None)]
        connection.execute(
            update(FailedSampleRow).where(FailedSampleRow.partition_id.in_(ids)).values(checked_at_ms=old)
        )
    before_ms = catalog.storage.now_ms() - DAY_MS
    catalog.quality.expire(before_ms, is_dry_run=True)
    assert [len(samples_of(catalog, table)) for table in tables] == [1, 1, 1]
    catalog.quality.expire(before_ms)
    assert [len(samples_of(catalog, table)) for table in tables] == [0, 1, 1]
    catalog.quality.remove_samples(tables[1])
    assert [len(samples_of(catalog, table)) for table in tables] == [0, 0, 1]


def test_repeated_check_of_an_operation_replaces_its_result(catalog: Catalog, tables: tuple[str, ...]) -> None:
    record(catalog, tables[0], "run", failed=2)
    catalog.operations.begin("run", OperationKind.ADD_PARTITIONS, tables[0])
    record(catalog, tables[0], "run")
    assert [check.failed for check in catalog.quality.history(tables[0])] == [0]


def test_history_keeps_the_newest_checks_of_a_table(
    catalog: Catalog, tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality_results, "HISTORY", 2)
    numbers = [record(catalog, tables[0], f"run {number}") for number in range(4)]
    record(catalog, tables[1], "other")
    assert [check.operation_number for check in catalog.quality.history(tables[0])] == numbers[:1:-1]
    assert len(catalog.quality.history(tables[1])) == 1


def test_latest_checks_are_those_of_all_tables(catalog: Catalog, tables: tuple[str, ...]) -> None:
    for name in tables[:2]:
        record(catalog, name, f"old {name}", failed=1)
    record(catalog, tables[0], "new")
    assert [(check.table, check.failed) for check in catalog.quality.latest()] == [
        ("shop.orders", 0),
        ("shop.visits", 1),
    ]
    assert [check.table for check in catalog.quality.latest(limit=1)] == ["shop.orders"]
    assert [check.table for check in catalog.quality.latest(after="shop.orders")] == ["shop.visits"]
    assert [check.table for check in catalog.quality.latest(only_failed=True)] == ["shop.visits"]
    assert [check.table for check in catalog.quality.latest(name_contains="P.ORD")] == ["shop.orders"]
    assert catalog.quality.latest(name_contains="%") == []
    catalog.drop_table("shop.orders")
    assert [check.table for check in catalog.quality.latest()] == ["shop.visits"]


def test_failed_partitions_are_listed_with_their_reasons(catalog: Catalog, tables: tuple[str, ...]) -> None:
    record(catalog, tables[0], "run", failed=3)
    record(catalog, tables[1], "other", failed=5)
    found = catalog.quality.failed_partitions(tables[0], limit=2)
    assert [failed.partition for failed in found] == ["day=2", "day=1"]
    assert [failed.check.failures for failed in found] == [(FAILED,)] * 2
    assert found[0].check.measures == {"row_count": 2}
    assert not found[0].is_quarantined
    (last,) = catalog.quality.failed_partitions(tables[0], before=found[-1].check.partition_id)
    assert last.partition == "day=0"


def test_measured_partitions_are_the_visible_ones(catalog: Catalog, tables: tuple[str, ...]) -> None:
    record(catalog, tables[0], "run", failed=1)
    newest = catalog.quality.measured_partitions(tables[0], limit=2)
    assert [(list(values), check.measures) for values, check in newest] == [
        (["4"], {"row_count": 4}),
        (["3"], {"row_count": 3}),
    ]
    number = catalog.operations.get("run").number
    assert catalog.quality.measured_partitions(tables[0], without_operation=number) == []
    assert catalog.quality.measured_partitions(tables[1]) == []
    assert len(list(catalog.get_partitions(tables[0], state=PartitionState.VISIBLE))) == 5


def test_maintenance_removes_old_checks_and_their_pages(
    catalog: Catalog, tables: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_QUALITY_PAGES", str(tmp_path / "pages"))
    pages = QualityPages(str(tmp_path / "pages"))
    page = Path(pages.write(tables[0], 1, "old", "text"))
    old = record(catalog, tables[0], "old", page=str(page))
    new = record(catalog, tables[0], "new")
    age(catalog, old, 100 * DAY_MS)
    assert catalog.maintenance.expire_operations(dry_run=True).quality_checks == 1
    report = catalog.maintenance.expire_operations()
    assert (report.quality_checks, report.quality_pages, report.problems) == (1, 0, ())
    assert [check.operation_number for check in catalog.quality.history(tables[0])] == [new]
    assert pages.read("shop.orders/1-old.html") == b"text"
    monkeypatch.setenv("CALVE_QUALITY_DAYS", "0")
    assert catalog.maintenance.expire_operations().quality_pages == 1
    with catalog.storage.read() as connection:
        assert connection.scalar(select(func.count()).select_from(QualityCheckRow)) == 0
    monkeypatch.setenv("CALVE_QUALITY_DAYS", "a week")
    with pytest.raises(InvalidConfigurationError, match="CALVE_QUALITY_DAYS is 'a week'"):
        catalog.maintenance.expire_operations()


@pytest.mark.parametrize(
    "name",
    [
        "shop.orders/2-run.html",
        "../1-run.html",
        "shop.orders/../../1-a.html",
        "/etc/passwd",
        "assets/0a/../../notes.html",
        "assets/0a/../../../secret.json",
        "assets/0a/css/../../../../secret.json",
        "assets/0a/.hidden",
        "assets/../1",
        "notes.html",
    ],
)
def test_only_pages_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "1-run.html").write_text("outside")
    assets = tmp_path / "pages" / "assets" / "0a"
    assets.mkdir(parents=True)
    (tmp_path / "pages" / "notes.html").write_text("theirs")
    (tmp_path / "secret.json").write_text("theirs")
    (assets / ".hidden").write_text("theirs")
    with pytest.raises(PageNotFoundError, match="has no page"):
        QualityPages(str(tmp_path / "pages")).read(name)


def test_page_of_another_location_has_no_name(tmp_path: Path) -> None:
    pages = QualityPages(str(tmp_path))
    assert pages.name_of(pages.write("shop.orders", 1, "a/../b", "text")) == "shop.orders/1-a----b.html"
    assert pages.name_of("s3://lake/shop.orders/1-run.html") is None
    assert pages.name_of(f"{tmp_path}/../shop.orders/1-run.html") is None


@pytest.mark.usefixtures("tables")
def test_command_lists_checks(catalog: Catalog, catalog_url: str) -> None:
    def calve(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["quality", *arguments], env={"CALVE_CATALOG_URL": catalog_url})

    assert calve("--failed").stderr == "There is no failed quality check of any table.\n"
    record(catalog, "shop.orders", "first", failed=1, page="/pages/shop.orders/1-first.html")
    record(catalog, "shop.orders", "second")
    record(catalog, "shop.visits", "other", failed=2)
    header, orders, visits = calve().stdout.splitlines()
    assert header.split()[:4] == ["TABLE", "CHECKED", "PARTITIONS", "FAILED"]
    assert orders.startswith("shop.orders ")
    assert "day=0: rows: 0" in visits
    assert [line.split()[0] for line in calve("--failed").stdout.splitlines()[1:]] == ["shop.visits"]
    found = [json.loads(line) for line in calve("shop.orders", "--json").stdout.splitlines()]
    assert [check["operation_id"] for check in found] == ["second", "first"]
    assert found[1]["page"] == "/pages/shop.orders/1-first.html"
    assert len(calve("shop.orders", "--failed").stdout.splitlines()) == 2
    assert calve("shop.none").exit_code == 1
