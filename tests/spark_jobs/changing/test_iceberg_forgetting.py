"""`CALL calve.system.forget` on migrated tables: afterwards no file below the table has the rows."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog import Catalog
from catalog.errors import OperationConflictError, UnsupportedChangeError
from catalog.operations.failpoints import Point
from catalog.statements.session import Session
from tests.spark_jobs.changing.test_forgetting import forget
from tests.spark_jobs.changing.test_iceberg_changes import rows, session  # noqa: F401 - a fixture
from tests.support.iceberg_tables import sql_catalog

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]

LATER = "CALL calve.system.forget('orders', \"note IN ('n2', 'gone')\")"
AT_ONCE = "CALL calve.system.forget(table => 'orders', where => 'note IN (''n2'', ''gone'')', at_once => true)"


def entries(path: Path) -> str:
    """Return what a manifest says of its files."""
    with path.open("rb") as file:
        return repr(list(fastavro.reader(file)))


def holders(folder: Path) -> list[str]:
    """Return the data files with such a note, and the metadata with it in the bounds of a column."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".parquet":
            # A delete file has no notes.
            notes = pq.ParquetFile(path).read().to_pydict().get("note", [])
            has_note = bool({"n2", "gone"} & set(notes))
        else:
            has_note = path.suffix == ".avro" and "gone" in entries(path)
        if has_note:
            found.append(str(path))
    return sorted(found)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_no_file_has_the_rows_afterwards(session: Session, catalog: Catalog, mode: str) -> None:  # noqa: F811
    folder = Path(catalog.get_table("demo.orders").location)
    url = catalog.storage.url.render_as_string(hide_password=False)
    with sql_catalog(url) as iceberg, iceberg.load_table("demo.orders").transaction() as transaction:
        transaction.set_properties({"write.delete.mode": mode, "write.update.mode": mode})
    session.execute("INSERT INTO orders VALUES (10, 'gone', 'be', 1), (11, 'gone', 'be', 1), (12, 'kept', 'be', 1)")
    session.execute("DELETE FROM orders WHERE id = 10")
    kept = [row for row in rows(session) if row[1] not in ("n2", "gone")]
    assert len(holders(folder)) >= 3
    report = forget(session, LATER)
    assert (report["rows_deleted"], report["rows_left"]) == (2, 0)
    assert report["files_left"] >= 2
    assert "of former snapshots, which may have such rows" in report["text"]
    assert rows(session) == kept
    report = forget(session, AT_ONCE)
    assert (report["rows_deleted"], report["files_left"]) == (0, 0), report["text"]
    assert "proven: none of the" in report["text"]
    assert rows(session) == kept
    assert holders(folder) == []
    session.execute("DELETE FROM orders WHERE note <> 'kept'")
    forget(session, AT_ONCE)
    assert "n3" not in "".join(map(entries, folder.rglob("*.avro")))
    # What no snapshot has is named, because it is not searched.
    pq.write_table(pa.table({"id": [2], "note": ["n2"]}), folder / "others.parquet")
    report = forget(session, AT_ONCE)
    assert report["files_left"] == 1
    assert "1 that no snapshot has, and that are not searched" in report["text"]
    assert str(folder / "others.parquet") in report["text"]
    with sql_catalog(url) as iceberg:
        assert iceberg.load_table("demo.orders").properties["write.delete.mode"] == mode


@pytest.mark.long
def test_a_table_that_shares_files_is_refused(session: Session) -> None:  # noqa: F811
    session.execute("CREATE TABLE shared (id int) PARTITIONED BY (k int) STORED AS PARQUET")
    session.execute("INSERT INTO shared VALUES (1, 1)")
    session.execute("CALL iceberg.system.snapshot('demo', 'shared', 'copy')")
    with pytest.raises(UnsupportedChangeError, match="shares files with"):
        session.execute("CALL calve.system.forget('copy', 'id = 1')")


@pytest.mark.long
def test_branches_and_tags_that_have_the_rows_are_named(session: Session, catalog: Catalog) -> None:  # noqa: F811
    url = catalog.storage.url.render_as_string(hide_password=False)
    with sql_catalog(url) as iceberg:
        table = iceberg.load_table("demo.orders")
        current = table.metadata.current_snapshot_id
        table.manage_snapshots().create_tag(current, "audit").create_branch(current, "dev").commit()
    report = forget(session, AT_ONCE)
    assert report["rows_deleted"] == 1
    assert "of former snapshots and of the branches or tags audit, dev, which may have such rows" in report["text"]
    with sql_catalog(url) as iceberg:
        iceberg.load_table("demo.orders").manage_snapshots().remove_tag("audit").remove_branch("dev").commit()
    assert forget(session, AT_ONCE)["files_left"] == 0


def test_files_are_removed_while_nothing_else_works_on_the_table(
    session: Session,  # noqa: F811
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A revert meanwhile would bring back a Hive table without these files."""
    from spark_jobs.changing import iceberg_forgetting

    delete, refused = iceberg_forgetting._delete, []

    def delete_beside_revert(paths: Collection[str]) -> int:
        with pytest.raises(OperationConflictError) as error:
            catalog.migrations.revert(f"revert-{len(refused)}", "demo.orders", lose_data=True)
        refused.append(error)
        return delete(paths)

    monkeypatch.setattr(iceberg_forgetting, "_delete", delete_beside_revert)
    assert forget(session, AT_ONCE)["files_left"] == 0
    assert len(refused) == 3
    assert len(rows(session)) == 6


@pytest.mark.long
@pytest.mark.parametrize("point", [Point.CHANGED, Point.COMMITTED, Point.FILES_DELETED])
def test_a_statement_that_was_interrupted_is_finished_by_its_repetition(
    session: Session,  # noqa: F811
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    point: Point,
) -> None:
    folder = Path(catalog.get_table("demo.orders").location)
    session.execute("UPDATE orders SET note = 'gone' WHERE id = 4")
    kept = [row for row in rows(session) if row[1] not in ("n2", "gone")]

    def fail(current: Point) -> None:
        if current is point:
            raise OSError("the disk is full")

    for module in ("catalog.datafiles.committing", "spark_jobs.changing.iceberg_forgetting"):
        monkeypatch.setattr(f"{module}.reached", fail)
    with pytest.raises(OSError, match="the disk is full"):
        session.execute(AT_ONCE)
    monkeypatch.undo()
    report = forget(session, AT_ONCE)
    if point is Point.CHANGED:
        # What the statement wrote, and no snapshot has, is left to remove_orphan_files.
        assert "that no snapshot has" in report["text"]
        assert all(path in report["text"] for path in holders(folder))
    else:
        assert (report["files_left"], holders(folder)) == (0, [])
    assert rows(session) == kept
