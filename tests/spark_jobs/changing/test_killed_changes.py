"""Changes of rows that are killed at any point are done again by the same call, or undone; on each database.

`make test-all` kills each change at each point; `tests/killed` does so by `kill -9`, on S3, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.operations.failpoints import DIE_AT, Point
from catalog.statements.session import Session
from tests.catalog.loading.test_publishing import cancel
from tests.spark_jobs.test_killed_rebalances import Died, dying_at
from tests.support.effort import sampled
from tests.support.iceberg_tables import iceberg_rows, migrate
from tests.support.published import check_published, files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

REPOSITORY = Path(__file__).parents[3]
TABLE = "demo.t"
NOW = timedelta(0)
KINDS = {
    "range": "STORED BY 'carbondata' TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2, 4')",
    "hive": "STORED AS PARQUET",
    "iceberg": "STORED AS ICEBERG",
    "migrated": "STORED AS PARQUET",
}
OF_FILES = (Point.FILES_WRITTEN, Point.LISTED, Point.MANIFEST_WRITTEN)
OF_FOLDERS = (Point.PARTLY_RESERVED, Point.RESERVED, Point.PARTLY_MOVED, Point.MOVED)
POINTS = {
    "range": (Point.JOURNALED, Point.STARTED, *OF_FILES, Point.CHANGED, Point.COMMITTED),
    "hive": (Point.JOURNALED, Point.STARTED, *OF_FOLDERS, Point.CHANGED, Point.COMMITTED),
    "iceberg": (Point.JOURNALED, Point.STARTED, Point.LISTED, Point.MANIFEST_WRITTEN, Point.CHANGED, Point.COMMITTED),
    "migrated": (Point.JOURNALED, Point.STARTED, Point.FILES_WRITTEN, Point.CHANGED, Point.COMMITTED),
}
STATEMENTS = {
    "delete": "DELETE FROM t WHERE n % 5 = 0",
    "update": "UPDATE t SET n = n + 100, c = CASE WHEN n = 1 THEN 5 ELSE c END WHERE c < 3",
    "overwrite": "INSERT OVERWRITE t VALUES (100, 1), (101, 5)",
    "compact": "ALTER TABLE t COMPACT",
    "merge": "MERGE INTO t USING (SELECT * FROM (VALUES (1, 5), (2, 2), (50, 3)) AS v (n, c)) s ON t.n = s.n "
    "WHEN MATCHED AND s.c = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET c = s.c WHEN NOT MATCHED THEN INSERT *",
}
CASES = [(kind, change) for kind in KINDS for change in STATEMENTS]
EACH = [(kind, change, point) for kind, change in CASES for point in POINTS[kind]]
Contents = Mapping[Any, list[int]]


@pytest.fixture
def fresh(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog on each database, whose warehouse is empty."""
    with Catalog.open(catalog_url, warehouse=str(tmp_path / "warehouse")) as catalog:
        yield catalog


@pytest.fixture
def run(spark: SparkSession, fresh: Catalog) -> Callable[..., object]:
    """Run a statement under an operation id."""
    from spark_jobs.sessions.session import configure
    from spark_jobs.statement_engine import SparkEngine

    def run(text: str, operation: str | None = None) -> object:
        with Session(fresh, database="demo", start=lambda opened: SparkEngine(opened, configure(spark))) as session:
            return session.execute(text, operation_id=operation)

    return run


def make_table(run: Callable[..., object], catalog: Catalog, kind: str) -> None:
    """Create the table with two files in each partition."""
    catalog.create_database("demo", if_not_exists=True)
    run(f"CREATE TABLE t (n int) PARTITIONED BY (c int) {KINDS[kind]}")
    for first in (0, 10):
        run(f"INSERT INTO t SELECT CAST(id AS int), CAST(id % 6 AS int) FROM range({first}, {first + 10})")
    if kind == "migrated":
        migrate(catalog, TABLE)


def contents(catalog: Catalog) -> Contents:
    """Return the numbers in the files of each partition, from one read of the catalog."""
    table = catalog.get_table(TABLE)
    found: dict[Any, list[int]] = {}
    if table.is_iceberg:
        url = catalog.storage.url.render_as_string(hide_password=False)
        for number, partition_value in iceberg_rows(url, TABLE):
            found.setdefault(partition_value, []).append(number)
    elif table.scheme is not None or table.is_stored_as_iceberg:
        scan: Any = catalog.scan_files(TABLE) if table.scheme is not None else catalog.scan_partition_files(TABLE)
        for file in scan.files:
            path = Path(table.location, file.path)
            found.setdefault(file.partition_id, []).extend(pq.ParquetFile(path).read()["n"].to_pylist())
    else:
        for partition in catalog.get_partitions(TABLE):
            paths = [path for path in Path(partition.location).iterdir() if path.suffix == ".parquet"]
            found[partition.values] = [
                number for path in paths for number in pq.ParquetFile(path).read()["n"].to_pylist()
            ]
    return {partition: sorted(numbers) for partition, numbers in found.items()}


def check_disk(catalog: Catalog, kind: str) -> None:
    """Check that vacuum leaves exactly the files of the table."""
    before = contents(catalog)
    for _ in range(2):
        assert catalog.vacuum(grace=NOW).problems == ()
    assert contents(catalog) == before
    root = Path(catalog.get_table(TABLE).location)
    on_disk = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    if kind == "range":
        check_published(catalog, TABLE)
        assert on_disk == files_of(catalog, TABLE)
    elif kind == "hive":
        data = {path for path in on_disk if path.endswith(".parquet")}
        assert len(data) == sum(partition.file_count or 0 for partition in catalog.get_partitions(TABLE))
        assert {path.split("/")[0] for path in data} == {f"c={values[0]}" for values in contents(catalog)}


def die(
    run: Callable[..., object], catalog: Catalog, change: str, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a change that dies at a point, so that nothing ends its operation."""
    with dying_at(point, monkeypatch), monkeypatch.context() as patch:
        patch.setattr(catalog.operations, "fail", lambda *_: None)
        with pytest.raises(Died):
            run(STATEMENTS[change], "operation")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "change"), sampled(CASES, [("range", "merge"), ("hive", "delete"), ("migrated", "update")])
)
def test_a_change_that_dies_at_each_point_ends_as_one_that_nobody_disturbed(
    run: Callable[..., object], fresh: Catalog, kind: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(run, fresh, kind)
    before = contents(fresh)
    for point in POINTS[kind]:
        die(run, fresh, change, point, monkeypatch)
        assert (contents(fresh) == before) is (point is not Point.COMMITTED or change == "compact")
    after = contents(fresh)
    assert run(STATEMENTS[change], "operation") == run(STATEMENTS[change], "operation")
    assert contents(fresh) == after
    check_disk(fresh, kind)
    numbers = sorted(number for own in after.values() for number in own)
    assert numbers == EXPECTED[change](before, kind)


def _kept(keep: Callable[[int, int], bool], *added: int) -> Callable[[Contents, str], list[int]]:
    return lambda before, kind: sorted([*(n for n in range(20) if keep(n, n % 6)), *added])


EXPECTED: Mapping[str, Callable[[Contents, str], list[int]]] = {
    "delete": _kept(lambda n, c: n % 5 != 0),
    "update": lambda before, kind: sorted(n + 100 if n % 6 < 3 else n for n in range(20)),
    "overwrite": lambda before, kind: sorted(
        [*(n for n in range(20) if n % 6 not in ((1, 5) if kind != "range" else (0, 1, 4, 5))), 100, 101]
    ),
    "compact": _kept(lambda n, c: True),
    "merge": _kept(lambda n, c: n != 2, 50),
}


@pytest.mark.parametrize(
    ("kind", "change", "point"),
    sampled(EACH, [("range", "update", Point.MANIFEST_WRITTEN), ("hive", "merge", Point.MOVED)]),
)
def test_a_change_that_dies_is_undone(
    run: Callable[..., object], fresh: Catalog, kind: str, change: str, point: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(run, fresh, kind)
    before = contents(fresh)
    die(run, fresh, change, point, monkeypatch)
    after = contents(fresh)
    if point is not Point.COMMITTED:
        assert after == before
        cancel(fresh, "operation")
    check_disk(fresh, kind)
    assert contents(fresh) == after


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "change", "point"),
    [
        ("range", "merge", Point.MANIFEST_WRITTEN),
        ("hive", "update", Point.MOVED),
        ("iceberg", "delete", Point.CHANGED),
    ],
)
def test_a_process_that_is_killed_changes_all_or_nothing(
    run: Callable[..., object], fresh: Catalog, catalog_url: str, kind: str, change: str, point: Point
) -> None:
    """`calve sql` with its own Spark; `tests/killed` kills processes that share one Spark, at every place."""
    make_table(run, fresh, kind)
    before = contents(fresh)
    environment = {**os.environ, DIE_AT: point, "PYTHONPATH": str(REPOSITORY), "CALVE_CATALOG_URL": catalog_url}
    command = [sys.executable, "-m", "catalog.cli", "sql", "--database", "demo", STATEMENTS[change]]
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, timeout=600, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    if point is not Point.COMMITTED:
        assert contents(fresh) == before
        cancel(fresh, *(operation.id for operation in fresh.operations.list(TABLE)))
        run(STATEMENTS[change])
    numbers = sorted(number for own in contents(fresh).values() for number in own)
    assert numbers == EXPECTED[change](before, kind)
    check_disk(fresh, kind)
