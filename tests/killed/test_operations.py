"""Operations that are killed by `kill -9` at every named point are undone, or done by the same call; files and S3.

    undone       killed at each place before the commit; then it is cancelled, and vacuum leaves what was there before
    done again   killed at each place, one after the other, and then run to its end, which is that of the other table

The other table has the same rows, and nothing disturbs the operation on it; it tells the places.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem
from pyiceberg.table import StaticTable

from catalog import Catalog
from catalog.files import object_stores
from catalog.operations.failpoints import Point
from standalone.class_archive import jvm_options
from standalone.java import require_java
from tests.support.object_store import ObjectStore
from tests.support.places import PLACES
from tests.support.published import reachable_files
from tests.support.warm_spark import WarmSpark

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

NOW = timedelta(0)
Row = tuple[int, int, int]
"""A number, a version, and the key of the partition."""

FORMATS = {
    "hive": "STORED AS PARQUET",
    "iceberg": "STORED AS ICEBERG",
    "range": "STORED BY 'carbondata' TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='1, 3')",
}
BEFORE: list[Row] = [*((number, 0, number % 4) for number in range(20)), (50, 0, 7)]
NEW: list[Row] = [(1, 1, 1), (101, 1, 1), (102, 1, 9), (2, 1, 9), (5, 3, 1), (50, 3, 7)]
"""New rows and versions; a merge deletes those of version 3, and with it partition 7."""

VALUES = ", ".join(map(str, NEW))
MERGE = """MERGE INTO {table} t USING (SELECT * FROM VALUES {values} AS s (n, v, c)) s ON t.n = s.n
    WHEN MATCHED AND s.v = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""


def merged() -> list[Row]:
    numbers = {number for number, _, _ in NEW}
    return [row for row in BEFORE if row[0] not in numbers] + [row for row in NEW if row[1] != 3]


def replaced(part_of: Callable[[int], int]) -> list[Row]:
    parts = {part_of(key) for _, _, key in NEW}
    return [row for row in BEFORE if part_of(row[2]) not in parts] + NEW


@dataclass(frozen=True)
class Mode:
    """An operation, which is a load with a mode or a statement, and the rows after it."""

    after: list[Row]
    load: Mapping[str, Any] | None = None
    statement: str = ""

    def work(self, table: str, source: str, operation: str) -> dict[str, Any]:
        if self.load is None:
            return {"statements": [self.statement.format(table=table, values=VALUES)], "operation": operation}
        types = {"n": "int", "v": "int"}
        return {"config": {"table": f"demo.{table}", "source": source, "columns": types, **self.load}}


KEPT = [row for row in BEFORE if row[0] % 5]
MODES = {
    "load append": Mode(BEFORE + NEW, {"mode": "append"}),
    "load replace": Mode(replaced(lambda key: key), {"mode": "replace"}),
    "load merge": Mode(merged(), {"mode": "merge", "merge": {"keys": ["n"], "order": "v", "delete": "v = 3"}}),
    "insert": Mode(BEFORE + NEW, statement="INSERT INTO {table} VALUES {values}"),
    "overwrite": Mode(replaced(lambda key: key), statement="INSERT OVERWRITE {table} VALUES {values}"),
    "delete": Mode(KEPT, statement="DELETE FROM {table} WHERE n % 5 = 0"),
    "update": Mode(
        [(n, 2, 9 if n == 1 else c) if c < 2 else (n, v, c) for n, v, c in BEFORE],
        statement="UPDATE {table} SET v = 2, c = CASE WHEN n = 1 THEN 9 ELSE c END WHERE c < 2",
    ),
    "merge": Mode(merged(), statement=MERGE),
    "remove": Mode(
        [row for row in BEFORE if row[2] not in (1, 2)], statement="DELETE FROM {table} WHERE c = 1 OR c = 2"
    ),
    "compact": Mode(BEFORE, statement="ALTER TABLE {table} COMPACT"),
    "forget": Mode(KEPT, statement="CALL calve.system.forget('{table}', 'n % 5 = 0', true)"),
}
RANGE_OVERWRITE = replaced(lambda key: (key >= 1) + (key >= 3))
CASES = [
    (mode, table_format)
    for mode, what in MODES.items()
    for table_format in FORMATS
    if what.load is None or table_format != "range"
]


@pytest.fixture(scope="module")
def spark(
    object_store_server: ObjectStore, tmp_path_factory: pytest.TempPathFactory, initialise_catalog: Callable[..., None]
) -> Iterator[WarmSpark]:
    """Spark that reaches files and S3, for all operations."""
    home, java = tmp_path_factory.mktemp("warm"), require_java()
    url = f"sqlite:///{home}/catalog.db"
    initialise_catalog(url)
    environment = {"JAVA_HOME": str(java), "SPARK_SUBMIT_OPTS": jvm_options(java), "CALVE_CATALOG_URL": url}
    storage = {**object_store_server.environment, "CALVE_WAREHOUSE": "s3://lake/warehouse"}
    with WarmSpark({**environment, **storage, "CALVE_SPARK_MASTER": "local[2]"}) as warm:
        yield warm


@dataclass(frozen=True)
class Lake:
    """A catalog, the place of its data, and the processes that change them."""

    catalog: Catalog
    root: str
    file_system: FileSystem
    spark: WarmSpark
    environment: Mapping[str, str]

    @property
    def is_on_s3(self) -> bool:
        return self.root.startswith("s3:")

    def run(self, work: Mapping[str, Any], place: str = "") -> dict[str, Any]:
        return self.spark.run(self.environment, work, place)

    def write(self, path: str, text: str) -> str:
        location = f"{self.root}/{path}"
        if isinstance(self.file_system, LocalFileSystem):
            Path(location).parent.mkdir(parents=True, exist_ok=True)
        with self.file_system.open_output_stream(self.path(location)) as file:
            file.write(text.encode())
        return location

    def path(self, location: str) -> str:
        return location.removeprefix("s3://")

    def files(self, location: str, *, recursive: bool = True) -> set[str]:
        """Return the complete locations of the files in a folder, hidden ones too."""
        selector = FileSelector(self.path(location), recursive=recursive, allow_not_found=True)
        prefix = "s3://" if location.startswith("s3://") else ""
        return {
            f"{prefix}{info.path}" for info in self.file_system.get_file_info(selector) if info.type is FileType.File
        }


@pytest.fixture(params=["files", "s3"])
def lake(
    request: pytest.FixtureRequest,
    spark: WarmSpark,
    object_store: ObjectStore,
    catalog_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:
    on_s3 = request.param == "s3"
    root = "s3://lake" if on_s3 else str(tmp_path / "lake")
    environment = {
        **{name: os.environ[name] for name in ("CALVE_CATALOG_URL", "PGPASSFILE")},
        **{"CALVE_WAREHOUSE": f"{root}/warehouse", "CALVE_HOME": str(tmp_path), "CALVE_ALLOWED_LOCATIONS": "*"},
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with Catalog.open(catalog_url) as catalog:
        catalog.create_database("demo")
        file_system = object_stores.s3_file_system("lake") if on_s3 else LocalFileSystem()
        yield Lake(catalog, root, file_system, spark, environment)


def make_tables(lake: Lake, table_format: str) -> None:
    """Create two tables with two files in most partitions, and no folders of earlier versions.

    `check` deletes these, so that a killed operation would not find what an undisturbed one does.
    """
    statements = []
    for table in ("t", "undisturbed"):
        statements.append(f"CREATE TABLE {table} (n int, v int) PARTITIONED BY (c int) {FORMATS[table_format]}")
        for rows in (BEFORE[:10], BEFORE[10:]):
            statements.append(f"INSERT INTO {table} VALUES {', '.join(map(str, rows))}")
    lake.run({"statements": statements})
    for table in ("t", "undisturbed"):
        check(lake, table, BEFORE)


def rows_of(lake: Lake, name: str) -> list[Row]:
    """Return the rows as PyIceberg reads the metadata, or as PyArrow reads the files in the catalog's folders.

    Like Calve's own readers, it leaves out files that are not committed.
    """
    table = lake.catalog.get_table(f"demo.{name}")
    if table.live_location is not None:
        properties = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"]}
        scan = StaticTable.from_metadata(table.live_location, properties).scan()
        return sorted((row["n"], row["v"], row["c"]) for row in scan.to_arrow().to_pylist())
    uncommitted = lake.catalog.loading.uncommitted(table).names
    return sorted(
        (row["n"], row["v"], int(partition.values[0] or ""))
        for partition in lake.catalog.get_partitions(table.full_name)
        for path in data_files(lake, partition.location)
        if path.rpartition("/")[2] not in uncommitted.get(partition.location, ())
        for row in pq.ParquetFile(lake.path(path), filesystem=lake.file_system).read().to_pylist()
    )


def data_files(lake: Lake, folder: str) -> set[str]:
    return {path for path in lake.files(folder, recursive=False) if path.endswith(".parquet")}


def counts(lake: Lake, name: str) -> dict[Any, tuple[int | None, int | None]]:
    """Return the numbers of files and of rows that the catalog has for each partition."""
    table = f"demo.{name}"
    if lake.catalog.get_table(table).scheme is not None:
        return {found.id: (found.file_count, found.row_count) for found in lake.catalog.scheme_partitions(table)}
    return {found.values: (found.file_count, found.row_count) for found in lake.catalog.get_partitions(table)}


def check(lake: Lake, name: str, rows: Collection[Row]) -> None:
    """Check the rows, that the counts are theirs, and that vacuum leaves all files of the table and no other."""
    assert rows_of(lake, name) == sorted(rows)
    for _ in range(2):
        assert lake.catalog.vacuum(f"demo.{name}", grace=NOW).problems == ()
    assert rows_of(lake, name) == sorted(rows)
    table, counted = lake.catalog.get_table(f"demo.{name}"), counts(lake, name)
    assert sum(row_count or 0 for _, row_count in counted.values()) == len(rows)
    if table.scheme is None:
        by_key = Counter(str(key) for _, _, key in rows)
        assert {values[0]: row_count for values, (_, row_count) in counted.items()} == by_key
    if table.live_location is not None:
        needed = reachable_files(lake.catalog, table.full_name)
        assert sum(file_count or 0 for file_count, _ in counted.values()) == len(data_files_of(needed))
    else:
        partitions = list(lake.catalog.get_partitions(table.full_name))
        needed = set[str]().union(*(data_files(lake, partition.location) for partition in partitions))
        assert len(needed) == sum(file_count or 0 for file_count, _ in counted.values())
    assert lake.files(table.location) == needed


def numbers_on_disk(lake: Lake, name: str) -> set[int]:
    """Return the numbers in all data files below the table's folder, whether the table has them or not."""
    paths = data_files_of(lake.files(lake.catalog.get_table(f"demo.{name}").location))
    files = (pq.ParquetFile(lake.path(path), filesystem=lake.file_system) for path in paths)
    return {number for file in files for number in file.read(["n"])["n"].to_pylist()}


def data_files_of(paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.endswith(".parquet")]


@pytest.mark.parametrize(("mode", "table_format"), CASES)
def test_an_operation_that_is_killed_is_undone_or_done_again(lake: Lake, mode: str, table_format: str) -> None:
    what = MODES[mode]
    after = RANGE_OVERWRITE if (mode, table_format) == ("overwrite", "range") else what.after
    source = lake.write("landing/new.csv", "n,v,c\n" + "".join(f"{n},{v},{c}\n" for n, v, c in NEW))
    make_tables(lake, table_format)
    places = lake.run(what.work("undisturbed", source, "undisturbed"))["places"]
    assert not lake.is_on_s3 or set(places) >= set(PLACES.get((mode, table_format), ()))
    commits = (number for number, place in enumerate(places) if place.endswith(f": {Point.COMMITTED}"))
    committed = next(commits, len(places))
    for place in places[:committed]:
        lake.run(what.work("t", source, str(uuid4())), place)
        assert rows_of(lake, "t") == sorted(BEFORE), place
        lake.catalog.operations.fail(lake.catalog.operations.list("demo.t")[0].id, "CANCELLED", "by the test")
        check(lake, "t", BEFORE)
    expected = [sorted(BEFORE)]
    for place in places:
        lake.run(what.work("t", source, "again"), place)
        # Once the rows are the new ones, they stay.
        expected = [rows for rows in (expected[0], sorted(after)) if rows == rows_of(lake, "t")]
        assert expected, place
    results = [lake.run(what.work("t", source, "again"))["results"] for _ in range(2)]
    # A compaction that is repeated finds no small files.
    assert results[1] == ([[None, False]] if what.load else results[0]) or (mode, results[1]) == (
        "compact",
        [[[0, 0, 0]]],
    )
    for table in ("t", "undisturbed"):
        if mode == "forget":
            assert numbers_on_disk(lake, table) == {number for number, _, _ in KEPT}, "before any vacuum"
        check(lake, table, after)
    assert sorted(counts(lake, "t").values(), key=str) == sorted(counts(lake, "undisturbed").values(), key=str)
