"""Loads in the caller's process: after any kill, the next one continues or undoes them; each file is loaded once."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from catalog import Catalog, NewPartition, Table
from catalog.errors import InvalidConfigurationError, OperationConflictError, SourceFileError
from catalog.operations.failpoints import Point
from catalog.operations.job_requests import CREATED_TABLE
from catalog.operations.local_locks import LocalLock
from catalog.operations.records import Operation, OperationKind, OperationState
from catalog.settings.table_config import TableConfig
from catalog.statements.loads import TableLoads
from tests.catalog.loading.test_loading import table as table
from tests.support.effort import effort
from tests.support.killed_loads import TABLE, ArrowEngine, load_and_die, load_files, start_arrow
from tests.support.processes import context

BEFORE_COMMIT = (
    *(Point.JOURNALED, Point.STARTED, "write_partitions", "register"),
    *(Point.RESERVED, Point.PARTLY_MOVED, Point.MOVED, Point.CHANGED),
)
AFTER_COMMIT = (Point.COMMITTED, "check_quality")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Two files: rows of a partition that exists, if the mode allows, and of two new ones."""
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "01.csv").write_text("JFK,1\nJFK,1\nLGA,1\n")
    (folder / "02.csv").write_text("EWR,2\n")
    return folder


def counts(catalog: Catalog) -> dict[tuple[str | None, ...], int | None]:
    return {partition.values: partition.row_count for partition in catalog.get_partitions(TABLE)}


def files(table: Table) -> list[str]:
    """Return the folders of all files in a table's location, one for each file."""
    root = Path(table.location)
    return sorted(str(path.parent.relative_to(root)) for path in root.rglob("*") if path.is_file())


def kill(catalog_url: str, home: Path, landing: Path, place: str, mode: str = "append") -> None:
    process = context.Process(target=load_and_die, args=(catalog_url, str(home), str(landing), mode, place))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL, place


@pytest.mark.parametrize(
    ("mode", "place"),
    effort(
        [("new", Point.JOURNALED), ("append", Point.MOVED), ("replace", "register")],
        list(product(("new", "append", "replace"), BEFORE_COMMIT)),
    ),
)
def test_a_killed_load_is_continued(
    catalog: Catalog, catalog_url: str, table: Table, home: Path, landing: Path, mode: str, place: str
) -> None:
    before = {} if mode == "new" else {("JFK", "1"): 7}
    if before:
        (landing / "00.csv").write_text("JFK,1\n" * 7)
        load_files(catalog, str(landing / "00.csv"))
    kill(catalog_url, home, landing, place, mode)
    assert counts(catalog) == before
    [report] = load_files(catalog, str(landing), mode)
    assert (report.is_continued, report.file_count, report.checked["passed"]) == (True, 2, 3)
    expected = 9 if mode == "append" else 2
    assert counts(catalog) == {("JFK", "1"): expected, ("LGA", "1"): 1, ("EWR", "2"): 1}
    assert report.operation_id is not None
    assert catalog.operations.get(report.operation_id).state is OperationState.CLEANED
    assert not any(path.startswith("_calve_staging") for path in files(table))
    assert [again.operation_id for again in load_files(catalog, str(landing), mode)] == [None]


@pytest.mark.parametrize("place", AFTER_COMMIT)
def test_a_load_killed_after_its_commit_is_checked_before_the_next_one(
    catalog: Catalog, catalog_url: str, table: Table, home: Path, landing: Path, place: str
) -> None:
    kill(catalog_url, home, landing, place)
    (landing / "03.csv").write_text("EWR,3\n")
    completed, own = load_files(catalog, str(landing))
    assert (completed.is_continued, completed.file_count, completed.checked["passed"]) == (True, 2, 3)
    assert (own.is_continued, own.file_count, own.checked["passed"]) == (False, 1, 1)
    assert counts(catalog) == {("JFK", "1"): 2, ("LGA", "1"): 1, ("EWR", "2"): 1, ("EWR", "3"): 1}
    assert len(files(table)) == 4


@pytest.mark.parametrize("place", effort(["register", Point.MOVED], BEFORE_COMMIT))
def test_a_killed_load_is_undone_by_one_of_other_files(
    catalog: Catalog, catalog_url: str, table: Table, home: Path, landing: Path, tmp_path: Path, place: str
) -> None:
    kill(catalog_url, home, landing, place)
    other = tmp_path / "other.csv"
    other.write_text("JFK,1\n")
    [report] = load_files(catalog, str(other))
    assert (report.is_continued, counts(catalog), len(files(table))) == (False, {("JFK", "1"): 1}, 1)
    [report] = load_files(catalog, str(landing))
    assert report.file_count == 2
    assert counts(catalog) == {("JFK", "1"): 3, ("LGA", "1"): 1, ("EWR", "2"): 1}


def test_a_load_that_runs_is_not_continued_by_another(catalog: Catalog, table: Table, landing: Path) -> None:
    refused = []

    def load_again(step: str) -> None:
        with pytest.raises(OperationConflictError) as caught:
            load_files(catalog, str(landing))
        refused.append((step, caught.value.holder))

    [report] = load_files(catalog, str(landing), on_step=lambda step: load_again(step) if "write" in step else None)
    assert refused == [("write_partitions", report.operation_id)]
    assert counts(catalog) == {("JFK", "1"): 2, ("LGA", "1"): 1, ("EWR", "2"): 1}


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SourceFileError])
def test_an_error_before_the_commit_releases_the_table(
    catalog: Catalog, landing: Path, home: Path, error: type[BaseException]
) -> None:
    def fail(step: str) -> None:
        if step == "register":
            raise error("a test")

    with pytest.raises(error):
        load_files(catalog, str(landing), on_step=fail)
    [failed] = catalog.operations.list(TABLE)
    assert (failed.state, failed.failure_code) == (OperationState.FAILED, error.__name__)
    catalog.add_partitions(TABLE, [NewPartition(["ORD", "1"])])
    [report] = load_files(catalog, str(landing))
    assert not report.is_continued
    assert counts(catalog).keys() == {("ORD", "1"), ("JFK", "1"), ("LGA", "1"), ("EWR", "2")}
    assert list((home / "operations").iterdir()) == []


@pytest.mark.usefixtures("table")
def test_a_check_that_was_stopped_is_made_up_for(catalog: Catalog, landing: Path) -> None:
    def stop(step: str) -> None:
        if step == "check_quality":
            raise KeyboardInterrupt

    quality = {"on_failure": "quarantine"}
    with pytest.raises(KeyboardInterrupt):
        load_files(catalog, str(landing), on_step=stop, quality=quality)
    assert counts(catalog) == {}
    completed, own = load_files(catalog, str(landing), quality=quality)
    assert (completed.checked["passed"], own.operation_id) == (3, None)
    assert len(counts(catalog)) == 3


@pytest.mark.usefixtures("table")
def test_a_check_is_made_up_for_by_the_present_rules(
    catalog: Catalog, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []

    def check(self: ArrowEngine, operation: Operation, step: str, request: Mapping[str, Any], conf: object) -> Any:
        if step != "check_quality":
            return run_step(self, operation, step, request, conf)
        checks.append(request["rules"])
        if "columns" in request["rules"]:
            raise InvalidConfigurationError("quality.columns names vv, which demo.t does not have")
        return run_step(self, operation, step, request, conf)

    run_step: Any = ArrowEngine.run_step
    monkeypatch.setattr(ArrowEngine, "run_step", check)
    wrong = {"columns": {"vv": {"min": 0}}}
    for _ in range(2):
        with pytest.raises(InvalidConfigurationError):
            load_files(catalog, str(landing), quality=wrong)
    completed, own = load_files(catalog, str(landing), quality={"on_failure": "fail"})
    assert checks == [wrong, wrong, {"on_failure": "fail"}]
    assert (completed.rules, own.operation_id) == ({"on_failure": "fail"}, None)


def test_a_load_whose_table_was_dropped_is_not_completed(
    catalog: Catalog, catalog_url: str, home: Path, landing: Path, table: Table
) -> None:
    kill(catalog_url, home, landing, "check_quality")
    catalog.drop_table(TABLE, purge=True)
    catalog.create_table(TABLE, columns=table.columns, partition_keys=table.partition_keys)
    [report] = load_files(catalog, str(landing))
    assert (report.is_continued, report.file_count) == (False, 2)
    assert counts(catalog) == {("JFK", "1"): 2, ("LGA", "1"): 1, ("EWR", "2"): 1}
    assert list((home / "operations").iterdir()) == []


@pytest.mark.parametrize("use", ["", "partition", "operation"])
def test_the_table_of_a_refused_load_is_dropped_unless_it_is_used(
    catalog: Catalog, catalog_url: str, landing: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    catalog.create_database("demo", if_not_exists=True)

    def refuse(self: ArrowEngine, operation: Operation, step: str, *_: Any) -> Any:
        with catalog.operations.attempt(operation.id, step) as attempt:
            if step == "write_partitions":
                raise SourceFileError("a test")
            catalog.create_table(TABLE, columns=[("v", "int")], partition_keys=[("month", "int")])
            catalog.operations.finish_job(operation.id, step, attempt, {CREATED_TABLE: True})

    def drop_late(name: str, **options: Any) -> Any:
        with Catalog.open(catalog_url) as other:
            if use == "partition":
                other.add_partitions(TABLE, [NewPartition(["1"])])
            if use == "operation":
                other.operations.begin("other", OperationKind.APPEND_ROWS, TABLE, is_exclusive=True)
        return drop_table(name, **options)

    drop_table = catalog.drop_table
    monkeypatch.setattr(ArrowEngine, "run_step", refuse)
    monkeypatch.setattr(catalog, "drop_table", drop_late)
    config = TableConfig(TABLE, str(landing), keys={"month": "int"})
    with pytest.raises(SourceFileError, match="a test"):
        list(TableLoads(catalog, start=start_arrow).load(config, [str(landing)]))
    assert [table.full_name for table in catalog.list_tables("demo")] == ([TABLE] if use else [])


def test_a_lock_belongs_to_one_operation_of_one_catalog(catalog: Catalog) -> None:
    lock = LocalLock(catalog.storage, "a")
    assert not lock.is_left
    with LocalLock(catalog.storage, "a") as held:
        assert not lock.is_left
        with pytest.raises(OperationConflictError, match="operation a is running"), lock:
            pass
        assert not LocalLock(catalog.storage, "b").is_left
    assert lock.is_left
    held.discard()
    assert not lock.is_left
