"""Loads of files into tables with a partition scheme: rows equal a model, whatever the kind, the mode and the kill."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.errors import CatalogError, PlanConflictError, SourceFileError, UnsupportedChangeError
from catalog.operations.failpoints import Point
from catalog.settings.table_config import TableConfig
from catalog.statements.loads import LoadReport, TableLoads
from catalog.statements.session import Session
from tests.spark_jobs.test_killed_rebalances import Died, check_disk, dying_at
from tests.support.effort import effort, sampled
from tests.support.published import check_published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

on_sqlite = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
"""For tests that do not depend on the database."""

TABLE = "demo.t"
KINDS = {
    "hash": "'PARTITION_TYPE'='HASH', 'PARTITION_NUM'='3'",
    "range": "'PARTITION_TYPE'='RANGE', 'RANGE_INFO'='2, 5', 'SORT_COLUMNS'='id'",
    "list": "'PARTITION_TYPE'='LIST', 'LIST_INFO'='0, 1, (2, 3)'",
    "interval": "'PARTITION_TYPE'='RANGE_INTERVAL', 'RANGE_INFO'='2', 'INTERVAL'='2'",
}
MERGE = {"keys": ["id"], "order": "at", "delete": "v = 0"}
POINTS = (
    *(Point.JOURNALED, Point.STARTED, Point.FILES_WRITTEN, Point.LISTED, Point.MANIFEST_WRITTEN),
    *(Point.CHANGED, Point.COMMITTED),
)

Row = tuple[int, int, int, int | None]
"""Columns id, v, at and the partition column c."""


class Loads:
    """Loads files into the table as `calve load` does, and changes a model of its rows."""

    def __init__(self, spark: SparkSession, catalog: Catalog, folder: Path, kind: str) -> None:
        from spark_jobs.sessions.session import configure
        from spark_jobs.statement_engine import SparkEngine

        self.catalog, self.folder = catalog, folder
        self.start = lambda opened: SparkEngine(opened, configure(spark))
        self.rows: list[Row] = []
        folder.mkdir()
        catalog.create_database("demo", if_not_exists=True)
        self.run(
            f"CREATE TABLE t (id bigint, v int, at int) PARTITIONED BY (c int) STORED BY 'carbondata' "
            f"TBLPROPERTIES ({KINDS[kind]})"
        )

    def run(self, statement: str) -> Any:
        """Execute a statement."""
        with Session(self.catalog, database="demo", start=self.start) as session:
            return session.execute(statement)

    def deliver(self, name: str, rows: list[Row]) -> Path:
        """Write a source file."""
        path = self.folder / name
        lines = (",".join("" if value is None else str(value) for value in row) for row in rows)
        path.write_text("\n".join(["id,v,at,c", *lines, ""]))
        return path

    def load(self, source: Path | None = None, mode: str = "", reload: bool = False, **fields: Any) -> LoadReport:
        """Load a source, by default all files of the folder; return the last report."""
        place = str(source or self.folder)
        fields = {"null_keys": "allow", "columns": {}, **fields}
        config = TableConfig(TABLE, place, mode=mode, merge=MERGE if mode == "merge" else {}, **fields)
        loads = TableLoads(self.catalog, start=self.start)
        return list(loads.load(config, [place], reload=reload))[-1]

    def expect(self, mode: str, new: list[Row]) -> None:
        """Change the model as a load does."""
        if mode == "replace":
            scheme = self.catalog.get_table(TABLE).scheme
            assert scheme is not None
            gone = set(scheme.ids) if scheme.type == "HASH" else {scheme.partition_of(row[3]) for row in new}
            self.rows = [row for row in self.rows if scheme.partition_of(row[3]) not in gone]
        if mode != "merge":
            self.rows += new
            return
        keys = {row[0] for row in new}
        kept = [row for row in self.rows if row[0] not in keys]
        for key in keys:
            # Of equally late rows, one of the source stays.
            same = [(row, False) for row in self.rows if row[0] == key] + [(row, True) for row in new if row[0] == key]
            latest = max(same, key=lambda candidate: (candidate[0][2], candidate[1]))[0]
            kept += [latest] if latest[1] else []
        self.rows = kept

    def check(self) -> None:
        """Compare the rows of all files with the model, each in the partition of its value."""
        table = self.catalog.get_table(TABLE)
        assert table.scheme is not None
        found: list[Row] = []
        for file in self.catalog.scan_files(TABLE).files:
            columns = pq.ParquetFile(Path(table.location, file.path)).read().to_pylist()
            rows = [(row["id"], row["v"], row["at"], row["c"]) for row in columns]
            assert {table.scheme.partition_of(row[3]) for row in rows} == {file.partition_id}
            found += rows
        assert sorted(found, key=str) == sorted(self.rows, key=str)
        check_published(self.catalog, TABLE)


@pytest.fixture
def make(spark: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("CALVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "*")

    def make_loads(kind: str) -> Loads:
        return Loads(spark, catalog, tmp_path / "landing", kind)

    return make_loads


def random_rows(choose: random.Random, mode: str, ids: Iterator[int]) -> list[Row]:
    """Return rows; of a merge, many with known ids, and each of the latest rows of an id is the same."""
    rows = []
    for _ in range(choose.randint(1, 12)):
        number = choose.randint(0, 20) if mode == "merge" else next(ids)
        # A row's time tells its contents, so that it does not matter which of equally late rows stays.
        at = choose.randint(0, 9)
        rows.append((number, (number + at) % 4, at, choose.choice([None, at % 5, at])))
    latest = {(row[0], row[2]): row for row in rows}
    return list(latest.values()) if mode == "merge" else rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", effort([1], range(12)))
def test_rows_equal_a_model(make: Callable[[str], Loads], kind: str, seed: int) -> None:
    choose, loads = random.Random(f"{kind}{seed}"), make(kind)
    ids = iter(range(1000))
    modes = ["", "merge", "replace", *choose.choices(["append", "replace", "merge"], k=1)]
    for number, mode in enumerate(modes):
        rows = random_rows(choose, mode, ids)
        source = loads.deliver(f"{number}.csv", rows)
        report = loads.load(source, mode)
        loads.expect(mode, rows)
        loads.check()
        assert report.validated["rows"] == len(rows)
        assert loads.load(source, mode).operation_id is None
        if mode != "merge":
            assert report.registered["row_count"] == len(rows)
    check_disk(loads.catalog)


@pytest.mark.long
@on_sqlite
def test_a_file_is_loaded_once_and_a_changed_one_is_noticed(make: Callable[[str], Loads]) -> None:
    loads = make("range")
    source = loads.deliver("a.csv", [(1, 1, 1, 1), (2, 1, 1, 3)])
    loads.load()
    loads.run(f"LOAD DATA INPATH '{loads.deliver('b.csv', [(3, 1, 1, 9)])}' INTO TABLE t")
    assert loads.load().operation_id is None
    loads.deliver("a.csv", [(1, 7, 1, 1), (2, 1, 1, 3)])
    with pytest.raises(SourceFileError, match=rf"1 file\(s\) changed after they were loaded into demo.t: {source}"):
        loads.load()
    report = loads.load(mode="replace")
    assert (report.file_count, report.registered["partitions_replaced"]) == (1, 2)
    loads.rows = [(1, 7, 1, 1), (2, 1, 1, 3), (3, 1, 1, 9)]
    loads.check()
    loads.load(source, "append", reload=True)
    loads.rows += [(1, 7, 1, 1), (2, 1, 1, 3)]
    loads.check()


@pytest.mark.long
@on_sqlite
def test_bad_rows_are_named_or_their_files_set_aside(make: Callable[[str], Loads]) -> None:
    loads = make("list")
    good = loads.deliver("good.csv", [(1, 1, 1, 1)])
    loads.deliver("null.csv", [(2, 1, 1, 1), (3, 1, 1, None)])
    (loads.folder / "text.csv").write_text("id,v,at,c\n4,1,1,x\n")
    with pytest.raises(SourceFileError, match=r"null.csv, line 3: column c is null, which `null_keys`") as caught:
        loads.load(null_keys="refuse")
    assert "text.csv, line 2: column c: 'x' is no int" in str(caught.value)
    (loads.folder / "none.csv").write_text("id,v,at\n4,1,1\n")
    for null_keys in ("refuse", "allow"):
        with pytest.raises(SourceFileError, match=r"none.csv has no column c, which the table is partitioned by; its"):
            loads.load(loads.folder / "none.csv", null_keys=null_keys)
    report = loads.load(bad_files="skip", null_keys="refuse", contract={"types": "discard_value"})
    assert report.validated["set_aside"]["files"] == 3
    assert {file.path.rpartition("/")[2] for file in loads.catalog.set_aside_files(TABLE)} == {
        "null.csv",
        "text.csv",
        "none.csv",
    }
    assert [
        Path(file.path).name
        for file in loads.catalog.loading.source_files(loads.catalog.operations.get(str(report.operation_id)))
    ] == [good.name]
    loads.rows = [(1, 1, 1, 1)]
    loads.check()
    loads.load(loads.folder / "null.csv", null_keys="allow")
    loads.rows += [(2, 1, 1, 1), (3, 1, 1, None)]
    loads.check()


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("kind", ["hash", "range"])
def test_files_without_rows_replace_nothing(make: Callable[[str], Loads], kind: str) -> None:
    loads = make(kind)
    loads.load(loads.deliver("a.csv", [(1, 1, 1, 1), (2, 1, 1, 3)]))
    empty = loads.deliver("empty.csv", [])
    if kind == "hash":
        with pytest.raises(SourceFileError, match=r"no rows, and mode replace would leave table demo.t without any"):
            loads.load(empty, "replace")
    else:
        assert loads.load(empty, "replace").registered["row_count"] == 0
    loads.rows = [(1, 1, 1, 1), (2, 1, 1, 3)]
    loads.check()


@pytest.mark.long
@on_sqlite
def test_json_records_need_the_partition_column(make: Callable[[str], Loads]) -> None:
    loads = make("list")
    path = loads.folder / "a.json"
    path.write_text('{"id": 1, "v": 1, "at": 1, "c": null}\n{"id": 2, "v": 1, "at": 1}\n')
    with pytest.raises(SourceFileError, match=r'the record \{"at":1,"id":2,"v":1\} has no field c'):
        loads.load(path, source_format="json", source_options={})
    path.write_text('{"id": 1, "v": 1, "at": 1, "c": null}\n')
    loads.load(path, source_format="json", source_options={})
    loads.rows = [(1, 1, 1, None)]
    loads.check()


@pytest.mark.long
@on_sqlite
def test_contracts_add_columns_while_rows_of_the_default_partition_move(make: Callable[[str], Loads]) -> None:
    loads = make("interval")
    loads.load(loads.deliver("a.csv", [(1, 1, 1, 1), (2, 1, 1, None)]))
    loads.run("INSERT INTO t VALUES (3, 1, 1, 3)")
    path = loads.folder / "b.csv"
    path.write_text("id,v,at,c,note\n9999999999,3000000000,1,7,late\n")
    with pytest.raises(SourceFileError, match="unknown note"):
        loads.load(path)
    report = loads.load(path, contract={"columns": "evolve", "types": "evolve"})
    assert report.registered["evolution"]["added"][0]["name"] == "note"
    assert [column.type for column in loads.catalog.get_table(TABLE).columns] == [
        "bigint",
        "bigint",
        "int",
        "string",
        "int",
    ]
    result = loads.run("SELECT id, v, at, c, note FROM t ORDER BY id")
    assert [tuple(row) for row in result.rows] == [
        (1, 1, 1, 1, None),
        (2, 1, 1, None, None),
        (3, 1, 1, 3, None),
        (9_999_999_999, 3_000_000_000, 1, 7, "late"),
    ]
    path.write_text("id,v,at,c\n1,1,1,9999999999\n")
    with pytest.raises(SourceFileError, match="column c: '9999999999' is no int"):
        loads.load(path, contract={"types": "evolve"}, reload=True)
    path.write_text("id,v,at,c\n1,5,2,1\n")
    loads.load(path, "merge", contract={"types": "evolve"}, reload=True)
    [row] = loads.run("SELECT v FROM t WHERE id = 1").rows
    assert tuple(row) == (5,)


@on_sqlite
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mode": "new"}, "mode is new, but .*; the modes of such a table are append, replace, merge"),
        ({"keys": {"c": "int"}}, "keys has c, but RANGE places rows by the column c"),
        ({"indexes": {"i": ["c"]}}, "indexes has i, but a partition scheme needs no partition index"),
        ({"quality": {"on_failure": "quarantine"}}, "quality.on_failure is quarantine, .*; write warn or fail"),
        ({"quality": {"agree": {"c": "v"}}}, "quality has agree or row_count.per, which are about partition keys"),
    ],
)
def test_settings_that_a_scheme_does_not_have_are_refused(
    make: Callable[[str], Loads], fields: dict[str, Any], problem: str
) -> None:
    loads = make("range")
    loads.deliver("a.csv", [(1, 1, 1, 1)])
    with pytest.raises(UnsupportedChangeError, match=rf"demo.t has a partition scheme \(RANGE on c\): {problem}"):
        loads.load(**fields)
    assert loads.catalog.operations.list(TABLE) == []


@pytest.mark.long
@on_sqlite
def test_rules_are_checked_by_partition_and_for_the_new_rows(make: Callable[[str], Loads]) -> None:
    loads = make("range")
    rules = {"columns": {"v": {"max": 5}, "at": {"max_null_ratio": 0.5}}}
    report = loads.load(loads.deliver("a.csv", [(n, 1, 1, n % 7) for n in range(14)]), quality=rules)
    assert (report.checked["checked"], report.checked["failed"]) == (3, 0)
    path = loads.folder / "b.csv"
    path.write_text("id,v,at,c\n20,1,,1\n21,9,1,3\n22,1,1,3\n")
    report = loads.load(path, quality=rules)
    assert (report.checked["checked"], report.checked["failed"]) == (2, 2)
    first, second = report.checked["failures"]
    assert first == "_partition_id=1: ratio of nulls in at in the new rows: 1, expected at most 0.5"
    assert second.startswith("_partition_id=2: rows with v above 5: 1, expected 0")
    assert loads.catalog.quality.get_many([0, 1, 2, 3]) == {}


@on_sqlite
def test_a_dry_run_changes_nothing(make: Callable[[str], Loads]) -> None:
    loads = make("hash")
    source = loads.deliver("a.csv", [(1, 1, 1, 1), (2, 1, 1, 2)])
    config = TableConfig(TABLE, str(source))
    [report] = TableLoads(loads.catalog, start=loads.start).load(config, [str(source)], dry_run=True)
    assert (report.is_dry_run, report.validated["rows"], report.validated["refused"]) == (True, 2, 0)
    loads.check()


@pytest.mark.long
@on_sqlite
def test_the_partitions_of_a_load_are_announced(make: Callable[[str], Loads]) -> None:
    loads = make("range")
    report = loads.load(loads.deliver("a.csv", [(1, 1, 1, 1), (2, 1, 1, 9)]))
    table = loads.catalog.get_table(TABLE)
    names = [partition.name(table) for partition in loads.catalog.operation_partitions(str(report.operation_id))]
    assert names == ["_partition_id=0", "_partition_id=1"]
    [number] = loads.catalog.announcements.claim("a test", batch_size=9, most=9, most_batches=9)
    announced = loads.catalog.announcements.get("a test", number)
    assert announced is not None
    assert list(announced.names) == names


@pytest.mark.long
@on_sqlite
def test_a_change_between_writing_and_publication_is_a_conflict(make: Callable[[str], Loads]) -> None:
    loads = make("range")
    loads.load(loads.deliver("a.csv", [(1, 1, 1, 1)]))
    source = loads.deliver("b.csv", [(1, 2, 2, 1)])

    def delete(step: str) -> None:
        if step == "register":
            from tests.support.published import published

            published(loads.catalog, TABLE)
            with loads.catalog.storage.write() as connection:
                from catalog.storage.schema import DataFileRow

                connection.execute(DataFileRow.__table__.delete())

    config = TableConfig(TABLE, str(source), mode="merge", merge=MERGE)
    with pytest.raises(PlanConflictError, match="changed after the load had written its files; nothing was loaded"):
        list(TableLoads(loads.catalog, start=loads.start, on_step=delete).load(config, [str(source)]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "mode"),
    sampled(
        [(kind, mode) for kind in KINDS for mode in ("append", "replace", "merge")],
        [("range", "merge"), ("interval", "append")],
    ),
)
def test_a_load_that_dies_at_each_point_is_continued(
    make: Callable[[str], Loads], kind: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = make(kind)
    first = [(number, 1, 1, number % 6) for number in range(8)]
    loads.load(loads.deliver("first.csv", first))
    loads.rows = first
    for number, point in enumerate(POINTS):
        rows = [(2 * number, 2, number + 2, 1), (100 + number, 3, 1, 8 + number)]
        source = loads.deliver(f"{number}.csv", rows)
        with dying_at(point, monkeypatch), monkeypatch.context() as patch:
            patch.setattr(loads.catalog.operations, "fail", lambda *_: None)
            with pytest.raises(Died):
                loads.load(source, mode)
        if point is not Point.COMMITTED:
            loads.check()
        report = loads.load(source, mode)
        loads.expect(mode, rows)
        loads.check()
        if point is not Point.COMMITTED:
            assert report.is_continued, point
        assert loads.load(source, mode).operation_id is None
    check_disk(loads.catalog)


@pytest.mark.long
@on_sqlite
def test_a_failed_load_leaves_nothing(make: Callable[[str], Loads]) -> None:
    loads = make("range")
    source = loads.deliver("a.csv", [(1, 1, 1, 1)])

    def fail(step: str) -> None:
        if step == "register":
            raise SourceFileError("a test")

    with pytest.raises(CatalogError):
        list(
            TableLoads(loads.catalog, start=loads.start, on_step=fail).load(
                TableConfig(TABLE, str(source)), [str(source)]
            )
        )
    loads.check()
    loads.load(source)
    loads.rows = [(1, 1, 1, 1)]
    loads.check()
    check_disk(loads.catalog)
    assert json.dumps(loads.catalog.operations.list(TABLE)[0].report)
