"""`CALL calve.system.forget`: afterwards no file below the table has the rows; the tests read the files themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog, PartitionState
from catalog.errors import (
    LocationNotAllowedError,
    OperationConflictError,
    ProcedureArgumentError,
    RefusedStatementError,
    TableNotFoundError,
)
from catalog.loading.quality_samples import replace_samples
from catalog.operations.failpoints import Point
from catalog.partitions.changing import set_quarantined
from catalog.settings.quality_rules import FailedSample, PartitionCheck
from catalog.statements.session import Session
from tests.support.iceberg_tables import sql_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NOW = timedelta(0)
ROWS = """(1, 'ann', 'US', '2026-01-01'), (2, 'bob', 'US', '2026-01-01'), (3, 'ann', 'US', '2026-01-02'),
(4, 'eve', 'DE', '2026-01-01'), (5, 'ann', 'DE', NULL)"""
KEPT = [(2, "bob", "US", "2026-01-01"), (4, "eve", "DE", "2026-01-01")]
FORMATS = {"hive": "STORED AS PARQUET", "csv": "STORED AS CSV", "iceberg": "STORED AS ICEBERG"}
AT_ONCE = "CALL calve.system.forget(table => 'shop.orders', where => 'name = ''ann''', at_once => true)"
SCHEME = "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='3, 5')"
LATER = "CALL calve.system.forget('orders', \"name = 'ann'\")"


@pytest.fixture(params=FORMATS)
def orders(session: Session, request: pytest.FixtureRequest) -> Session:
    return create(session, request.param)


def create(session: Session, kind: str) -> Session:
    session.execute(
        f"CREATE TABLE orders (id int, name string) PARTITIONED BY (country string, day date) {FORMATS[kind]}"
    )
    session.execute(f"INSERT INTO orders VALUES {ROWS}")
    return session


def rows(session: Session) -> list[tuple[Any, ...]]:
    answer = session.execute("SELECT id, name, country, CAST(day AS STRING) FROM orders ORDER BY id")
    return [tuple(row) for row in answer.rows]


def holders(folder: str | Path, name: str = "ann") -> list[str]:
    """Return the files, hidden ones included, that have a name in some row or anywhere in their text."""
    found = []
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_file():
            continue
        if path.suffix == ".parquet":
            columns = pq.read_table(path, partitioning=None).to_pydict()
            has_name = any(name in values for values in columns.values())
        else:
            has_name = name.encode() in path.read_bytes()
        if has_name:
            found.append(str(path))
    return found


def forget(session: Session, statement: str) -> dict[str, Any]:
    answer = session.execute(statement)
    return {**dict(zip(answer.columns, answer.rows[0], strict=True)), "text": answer.text}


@pytest.mark.long
def test_no_file_has_the_rows_afterwards(orders: Session, catalog: Catalog) -> None:
    folder = catalog.get_table("shop.orders").location
    orders.execute("UPDATE orders SET name = 'ann' WHERE id = 4")
    orders.execute("UPDATE orders SET name = 'eve' WHERE id = 4")
    assert len(holders(folder)) >= 3
    ids = [partition.id for partition in catalog.get_partitions("shop.orders")]
    with catalog.storage.write() as connection:
        check = PartitionCheck(ids[0], samples=(FailedSample("rows", ("name",), (("ann",),)),))
        replace_samples(connection, [check], ids, 0)
    report = forget(orders, AT_ONCE)
    assert catalog.quality.samples(ids) == {}
    assert (report["rows_deleted"], report["partitions_changed"]) == (3, 3)
    assert (report["files_left"], report["rows_left"]) == (0, 0)
    assert "proven: none of the 2 file(s) in the folders of the table has such a row" in report["text"]
    assert rows(orders) == KEPT
    assert holders(folder) == []
    again = forget(orders, AT_ONCE)
    assert (again["rows_deleted"], again["partitions_changed"], again["files_searched"]) == (0, 0, 2)


@pytest.mark.long
def test_rows_of_a_table_with_a_partition_scheme_are_forgotten(session: Session, catalog: Catalog) -> None:
    session.execute(
        "CREATE TABLE orders (name string, country string, day string) PARTITIONED BY (id int) STORED BY 'carbondata' "
        "TBLPROPERTIES ('PARTITION_TYPE'='RANGE', 'RANGE_INFO'='3, 5')"
    )
    session.execute(f"INSERT INTO orders (id, name, country, day) VALUES {ROWS}")
    session.execute("UPDATE orders SET name = 'ann' WHERE id = 4")
    session.execute("UPDATE orders SET name = 'eve' WHERE id = 4")
    folder = catalog.get_table("shop.orders").location
    later = forget(session, LATER)
    assert later["rows_deleted"] == 3
    assert later["files_left"] == len(holders(folder)) > 0
    at_once = forget(session, AT_ONCE)
    assert (at_once["files_left"], at_once["rows_left"]) == (0, 0)
    assert rows(session) == KEPT
    assert holders(folder) == []


@pytest.mark.long
def test_without_at_once_running_readers_keep_the_files_for_the_grace_period(orders: Session, catalog: Catalog) -> None:
    folder = catalog.get_table("shop.orders").location
    report = forget(orders, LATER)
    assert rows(orders) == KEPT
    assert report["files_left"] == len(holders(folder)) == 3
    assert report["rows_left"] == 3
    assert "3 that running readers may need; vacuum deletes them after the grace period" in report["text"]
    for _ in range(3):
        assert catalog.vacuum(grace=NOW).problems == ()
    assert holders(folder) == []
    assert "proven: none of the 2 file(s)" in forget(orders, LATER)["text"]


@pytest.mark.long
def test_quarantined_partitions_lose_the_rows_and_stay_quarantined(session: Session, catalog: Catalog) -> None:
    create(session, "hive")
    table = catalog.get_table("shop.orders")
    with catalog.storage.write() as connection:
        hidden = [found.id for found in catalog.get_partitions("shop.orders", "day = '2026-01-01'")]
        set_quarantined(connection, table, hidden, True)
    session.execute("CREATE TABLE other (id int) PARTITIONED BY (n int)")
    assert forget(session, AT_ONCE)["partitions_changed"] == 3
    assert holders(table.location) == []
    assert rows(session) == []
    left = list(catalog.get_partitions("shop.orders", state=PartitionState.QUARANTINED))
    assert sorted(found.row_count or 0 for found in left) == [1, 1]


@pytest.mark.long
def test_copies_of_refused_rows_and_of_dropped_partitions_are_deleted_and_files_of_others_named(
    session: Session, catalog: Catalog
) -> None:
    create(session, "hive")
    table = catalog.get_table("shop.orders")
    folder = Path(table.location)
    session.execute("ALTER TABLE orders DROP PARTITION (country = 'DE')")
    (own,) = folder.glob("country=US/day=2026-01-02/*.parquet")
    operation = catalog.operations.list(table="shop.orders")[0]
    refused = folder / "_calve_rejected" / operation.folder / "country=FR/day=2026-01-02" / own.name
    foreign = folder / "country=FR/day=2026-01-03/part-0.parquet"
    for copy in (refused, foreign):
        copy.parent.mkdir(parents=True)
        copy.write_bytes(own.read_bytes())
    later = forget(session, LATER)
    assert not refused.exists()
    assert "1 of dropped partitions; delete them with at_once => true: " in later["text"]
    assert f"1 that Calve did not write; delete them yourself, and run the statement again: {foreign}" in later["text"]
    at_once = forget(session, AT_ONCE)
    assert (at_once["files_left"], at_once["rows_left"]) == (1, 1)
    assert holders(folder) == [str(foreign)]
    # The condition is on a key, of which the folder tells the value.
    (report,) = session.execute("CALL calve.system.forget('orders', \"country = 'FR'\", true)").rows
    assert report[-2:] == [1, 1]
    foreign.unlink()
    assert "proven" in forget(session, AT_ONCE)["text"]


@pytest.mark.long
def test_files_that_cannot_be_read_are_named_and_prevent_the_proof(session: Session, catalog: Catalog) -> None:
    create(session, "hive")
    folder = Path(catalog.get_table("shop.orders").location)
    others = [folder / name for name in ("country=US/broken.parquet", "notes.txt", "schema.json")]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(b"PAR1 ann")
    report = forget(session, AT_ONCE)
    assert rows(session) == KEPT
    assert (report["files_searched"], report["files_left"], report["rows_left"]) == (5, 3, 0)
    assert "3 that cannot be read, so that they may have such rows, that Calve did not write; delete" in report["text"]
    assert all(str(other) in report["text"] for other in others)
    for other in others:
        other.unlink()
    assert "proven" in forget(session, AT_ONCE)["text"]


@pytest.mark.long
def test_no_file_behind_a_link_that_leads_out_of_the_allowed_folders_is_searched(
    session: Session, spark: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.changing.remaining import find_holders

    create(session, "hive")
    table = catalog.get_table("shop.orders")
    (tmp_path / "secret.parquet").write_bytes(b"")
    Path(table.location, "country=US/day=2026-01-02/linked.parquet").symlink_to(tmp_path / "secret.parquet")
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "allowed"))
    with pytest.raises(LocationNotAllowedError, match=r"linked\.parquet is behind a symbolic link"):
        find_holders(spark, catalog, table, "name = 'ann'")


@pytest.mark.long
def test_partitions_in_folders_elsewhere_are_searched_too(session: Session, catalog: Catalog, tmp_path: Path) -> None:
    create(session, "hive")
    folder = Path(catalog.get_table("shop.orders").location)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (own,) = folder.glob("country=US/day=2026-01-02/*.parquet")
    (elsewhere / "data.parquet").write_bytes(own.read_bytes())
    session.execute(f"ALTER TABLE orders ADD PARTITION (country = 'IT', day = '2026-02-01') LOCATION '{elsewhere}'")
    assert forget(session, LATER)["rows_left"] == 4
    # The condition is on a key, which the path of the file does not tell.
    by_key = forget(session, "CALL calve.system.forget('orders', \"country = 'IT'\")")
    assert (by_key["rows_left"], by_key["text"].count(f"{elsewhere}/data.parquet")) == (1, 1)
    assert rows(session) == KEPT
    assert forget(session, AT_ONCE)["files_left"] == 0
    assert holders(elsewhere) == []


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("CALL calve.system.forget('orders')", ProcedureArgumentError, "forget needs where"),
        ("CALL calve.system.forget('orders', '')", ProcedureArgumentError, "where is empty"),
        ("CALL calve.system.forget('nothing', 'id = 1')", TableNotFoundError, "nothing"),
        ("CALL calve.system.forget('orders', 'java_method(''x'', ''y'') = 1')", RefusedStatementError, "java_method"),
    ],
)
def test_wrong_calls_change_nothing(
    session: Session, catalog: Catalog, statement: str, error: type[Exception], message: str
) -> None:
    create(session, "hive")
    with pytest.raises(error, match=message):
        session.execute(statement)
    assert len(rows(session)) == 5


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hive", "iceberg"])
@pytest.mark.parametrize("point", [Point.CHANGED, Point.FILES_DELETED])
def test_a_statement_that_was_interrupted_is_finished_by_its_repetition(
    session: Session, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, point: Point, kind: str
) -> None:
    create(session, kind)

    def fail(current: Point) -> None:
        if current is point:
            raise OSError("the disk is full")

    modules = ("catalog.loading.loading", "catalog.loading.publishing", "spark_jobs.changing.forgetting")
    for module in modules:
        monkeypatch.setattr(f"{module}.reached", fail)
    with pytest.raises(OSError, match="the disk is full"):
        session.execute(AT_ONCE)
    monkeypatch.undo()
    assert forget(session, AT_ONCE)["files_left"] == 0
    assert rows(session) == KEPT
    assert holders(catalog.get_table("shop.orders").location) == []


@pytest.mark.long
def test_the_folder_of_a_renamed_partition_is_searched_with_its_present_values(
    session: Session, catalog: Catalog
) -> None:
    session.execute("CREATE TABLE visits (id int, name string) PARTITIONED BY (day string) STORED AS PARQUET")
    session.execute("INSERT INTO visits VALUES (1, 'ann', '1'), (2, 'bob', '1')")
    session.execute("ALTER TABLE visits PARTITION (day = '1') RENAME TO PARTITION (day = '2')")
    folder = catalog.get_table("shop.visits").location
    condition = "name = 'ann' AND day = '2'"
    later = forget(session, f'CALL calve.system.forget("visits", "{condition}")')
    assert (later["rows_deleted"], later["files_left"], len(holders(folder))) == (1, 1, 1)
    assert "proven" in forget(session, f'CALL calve.system.forget("visits", "{condition}", true)')["text"]
    assert holders(folder) == []


@pytest.mark.long
def test_a_condition_may_name_the_table_and_chars_compare_as_in_statements(
    session: Session, catalog: Catalog, tmp_path: Path
) -> None:
    session.execute("CREATE TABLE visits (id int, code char(4)) PARTITIONED BY (day string, shop char(6))")
    session.execute("INSERT INTO visits VALUES (1, 'ann', '1', 'a'), (2, 'bob', '1', 'a')")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    pq.write_table(pa.table({"id": pa.array([3, 4], pa.int32()), "code": ["ann", "bob"]}), elsewhere / "data.parquet")
    session.execute(f"ALTER TABLE visits ADD PARTITION (day = '2', shop = 'b') LOCATION '{elsewhere}'")
    table = catalog.get_table("shop.visits")
    with catalog.storage.write() as connection:
        hidden = [found.id for found in catalog.get_partitions("shop.visits", "day = '2'")]
        set_quarantined(connection, table, hidden, True)
    condition = "visits.code = 'ann' AND shop.visits.shop IN ('a', 'b') -- a customer"
    later = forget(session, f'CALL calve.system.forget("visits", "{condition}")')
    assert (later["partitions_changed"], later["files_left"]) == (2, 2)
    assert forget(session, f'CALL calve.system.forget("visits", "{condition}", true)')["files_left"] == 0
    assert holders(elsewhere) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO orders VALUES (7, 'ann', 'FR', '2026-03-01'), (8, 'zoe', 'FR', '2026-03-01')",
        "INSERT OVERWRITE orders VALUES (7, 'ann', 'US', '2026-01-01'), (8, 'zoe', 'US', '2026-01-01')",
    ],
)
def test_files_of_a_load_that_is_not_committed_yet_are_not_deleted(
    session: Session, catalog: Catalog, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    from spark_jobs.changing import forgetting

    create(session, "hive")
    moved, may_commit = Event(), Event()

    def pause(point: Point) -> None:
        if point is Point.MOVED:
            moved.set()
            may_commit.wait(60)

    def load() -> None:
        from spark_jobs.sessions.session import configure
        from spark_jobs.statement_engine import SparkEngine

        with Session(catalog, database="shop", start=lambda own: SparkEngine(own, configure(spark))) as other:
            other.execute(statement)

    with ThreadPoolExecutor(1) as pool:
        loads = []

        def after_vacuum(point: Point) -> None:
            if point is Point.FILES_DELETED:
                monkeypatch.setattr("catalog.loading.loading.reached", pause)
                loads.append(pool.submit(load))
                assert moved.wait(60)

        monkeypatch.setattr(forgetting, "reached", after_vacuum)
        with pytest.raises(OperationConflictError, match="is running on it"):
            session.execute(AT_ONCE, operation_id="forget")
        may_commit.set()
        loads[0].result(60)
    monkeypatch.undo()
    assert [row[1] for row in rows(session)].count("zoe") == 1
    answer = session.execute(AT_ONCE, operation_id="forget")
    report = dict(zip(answer.columns, answer.rows[0], strict=True))
    assert (report["rows_deleted"], report["files_left"], report["rows_left"]) == (3, 1, 1)
    assert "whose rows arrived meanwhile" in answer.text
    assert forget(session, AT_ONCE)["files_left"] == 0
    assert holders(catalog.get_table("shop.orders").location) == []
    assert [row[1] for row in rows(session)].count("zoe") == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["scheme", "iceberg"])
@pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
def test_former_files_of_other_engines_are_searched_by_the_ids_of_columns(
    session: Session, catalog: Catalog, catalog_url: str, kind: str
) -> None:
    stored = f"STORED BY 'carbondata' {SCHEME}" if kind == "scheme" else "STORED AS ICEBERG"
    session.execute(f"CREATE TABLE orders (id int, name string) PARTITIONED BY (n int) {stored}")
    session.execute("ALTER TABLE orders DROP COLUMN name")
    session.execute("ALTER TABLE orders ADD COLUMNS (name string)")
    # Files of Calve name the column otherwise, because the name belongs to the dropped one.
    columns = {"id": pa.array([1, 2], pa.int32()), "name": ["ann", "bob"], "n": pa.array([1, 1], pa.int32())}
    with sql_catalog(catalog_url) as iceberg:
        table = iceberg.load_table("shop.orders")
        table.append(pa.table({name: columns[name] for name in table.schema().column_names}))
    folder = catalog.get_table("shop.orders").location
    later = forget(session, LATER)
    assert (later["rows_deleted"], later["files_left"], len(holders(folder))) == (1, 1, 1)
    assert forget(session, AT_ONCE)["files_left"] == 0
    assert holders(folder) == []
