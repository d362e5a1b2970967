"""Tables of earlier versions become Iceberg tables, too: killed and repeated, beside loads, without a written file."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import index_name_by_id
from sqlalchemy import select, update

from catalog import Catalog, Column
from catalog.datafiles import conversion
from catalog.errors import InvalidSchemeError, ReservedColumnError
from catalog.iceberg.pointers import delete_pointer
from catalog.operations.failpoints import Point
from catalog.storage.schema import TableRow
from catalog.storage.upgrade import downgrade
from catalog.tables.schemes import scheme_from_properties
from tests.support import killed_changes
from tests.support.commands import calve
from tests.support.iceberg_tables import iceberg_rows, sql_catalog
from tests.support.killed_changes import contents, load
from tests.support.processes import context
from tests.support.published import check_published, published

TABLE = "demo.t"


@pytest.fixture
def earlier(catalog: Catalog) -> str:
    """A table of an earlier version, with files of two loads."""
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "10, 20, 30"})
    catalog.create_table(TABLE, columns=[("c", "int")], scheme=scheme)
    load(catalog, "first", TABLE, range(0, 40, 2))
    load(catalog, "second", TABLE, range(1, 41, 2))
    pretend_earlier(catalog, TABLE)
    return TABLE


def pretend_earlier(catalog: Catalog, name: str) -> None:
    """Make a table such as earlier versions left them, without metadata."""
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(published_location=None))
        assert delete_pointer(connection, *name.split("."))
    for path in Path(catalog.get_table(name).location, "metadata").iterdir():
        path.unlink()


def data_files(catalog: Catalog) -> dict[str, tuple[str, int]]:
    """Return the digest and the time of the last change of each data file."""
    root = Path(catalog.get_table(TABLE).location)
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in root.rglob("*.parquet")
    }


def test_a_table_is_published_with_the_bounds_of_its_files(catalog: Catalog, catalog_url: str, earlier: str) -> None:
    before = data_files(catalog)
    assert catalog.unpublished_tables() == {TABLE: 8}
    assert catalog.publish_table(TABLE) == 8
    check_published(catalog, TABLE)
    assert iceberg_rows(catalog_url, TABLE) == sorted(((number,) for number in range(40)), key=repr)
    with sql_catalog(catalog_url) as iceberg:
        planned = iceberg.load_table(TABLE).scan(row_filter=EqualTo("c", 25)).plan_files()
        assert [task.file.record_count for task in planned] == [5, 5]
    assert data_files(catalog) == before
    assert catalog.unpublished_tables() == {}
    location = catalog.get_table(TABLE).published_location
    assert catalog.publish_table(TABLE) == 8
    assert catalog.get_table(TABLE).published_location == location


def test_an_earlier_table_works_before_it_is_published(catalog: Catalog, earlier: str) -> None:
    load(catalog, "third", TABLE, [3])
    catalog.alter_table(TABLE, add_columns=[("d", "int")], rename_to="u")
    catalog.vacuum("demo.u", grace=timedelta(0))
    assert catalog.unpublished_tables() == {"demo.u": 9}
    catalog.publish_table("demo.u")
    check_published(catalog, "demo.u")


def test_fields_inside_of_columns_get_ids(catalog: Catalog, catalog_url: str) -> None:
    scheme = scheme_from_properties(Column("c", "int"), {"PARTITION_TYPE": "HASH", "PARTITION_NUM": "2"})
    catalog.create_table(TABLE, columns=[("s", "struct<x:int,y:array<int>>"), ("c", "int")], scheme=scheme)
    downgrade(catalog.storage, "0021")
    with catalog.storage.read() as connection:
        stored = connection.scalars(select(TableRow.columns)).one()
    assert [sorted(column) for column in stored] == [["id", "name", "type"]] * 2
    assert calve("init", CALVE_CATALOG_URL=catalog_url).exit_code == 0
    before = index_name_by_id(published(catalog, TABLE).schema())
    assert sorted(before.values()) == ["c", "s", "s.x", "s.y", "s.y.element"]
    catalog.alter_table(TABLE, add_columns=[("d", "int")])
    after = index_name_by_id(published(catalog, TABLE).schema())
    assert after == {**before, max(before) + 1: "d"}


@pytest.mark.first_case
def test_a_killed_publication_is_made_by_the_next_run(catalog: Catalog, catalog_url: str, earlier: str) -> None:
    before = data_files(catalog)
    for point in (Point.MANIFEST_WRITTEN, Point.CHANGED, Point.COMMITTED):
        process = context.Process(target=killed_changes.publish_table, args=(catalog_url, TABLE, point))
        process.start()
        process.join(300)
        assert process.exitcode == -9
        assert (catalog.unpublished_tables() == {}) is (point is Point.COMMITTED)
    assert catalog.publish_table(TABLE) == 8
    assert contents(catalog, TABLE) == {0: [*range(30, 40)], 1: [*range(10)], 2: [*range(10, 20)], 3: [*range(20, 30)]}
    catalog.vacuum(TABLE, grace=timedelta(0))
    check_published(catalog, TABLE)
    assert data_files(catalog) == before
    manifests = [*Path(catalog.get_table(TABLE).location, "metadata").glob("*-m*.avro")]
    assert len(manifests) == 1, "vacuum deletes the manifests of the killed publications"


@pytest.mark.parametrize("loads", [1, 9])
def test_files_that_are_loaded_meanwhile_are_published_too(
    catalog: Catalog, earlier: str, loads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(loads))

    def loaded(point: Point) -> None:
        if point is Point.MANIFEST_WRITTEN and (number := next(left, None)) is not None:
            load(catalog, f"late-{number}", TABLE, [number])

    monkeypatch.setattr(conversion, "reached", loaded)
    catalog.publish_table(TABLE)
    check_published(catalog, TABLE)


def test_other_tables_are_not_published(catalog: Catalog) -> None:
    catalog.create_table("demo.plain", columns=[("c", "int")])
    assert catalog.unpublished_tables() == {}
    with pytest.raises(InvalidSchemeError):
        catalog.publish_table("demo.plain")


def test_init_publishes_what_it_can_and_names_the_rest(catalog: Catalog, catalog_url: str, earlier: str) -> None:
    with catalog.storage.write() as connection:
        row = connection.execute(TableRow.__table__.select()).one()
        columns = [{**column, "name": "_pos"} for column in row.columns]
        connection.execute(update(TableRow).values(columns=columns, scheme={**row.scheme, "column": "_pos"}))
    with pytest.raises(ReservedColumnError):
        catalog.publish_table(TABLE)
    done = calve("init", CALVE_CATALOG_URL=catalog_url)
    assert done.exit_code == 1
    assert "_pos" in done.stderr
    assert f"{TABLE}: other engines cannot read it" in done.stderr
    assert "Traceback" not in done.stderr
    with catalog.storage.write() as connection:
        connection.execute(update(TableRow).values(columns=row.columns, scheme=row.scheme))
    for _ in range(2):
        planned = calve("init", "--dry-run", CALVE_CATALOG_URL=catalog_url)
        assert (planned.exit_code, planned.stderr) == (0, "")
        assert planned.stdout == f"{TABLE} would become an Iceberg table, too (8 files).\n"
    done = calve("init", CALVE_CATALOG_URL=catalog_url)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{TABLE}: other engines can read it as an Iceberg table now (8 files)." in done.stdout
    check_published(catalog, TABLE)
    assert calve("init", "--dry-run", CALVE_CATALOG_URL=catalog_url).stdout == "There is nothing to do.\n"


def test_a_dry_run_reads_a_catalog_of_an_earlier_version(
    catalog: Catalog, catalog_url: str, earlier: str, tmp_path: Path
) -> None:
    downgrade(catalog.storage, "0021")
    planned = calve("init", "--dry-run", CALVE_CATALOG_URL=catalog_url)
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert "upgraded from revision 0021" in planned.stdout
    assert f"{TABLE} would become an Iceberg table, too (8 files).\n" in planned.stdout
    assert calve("init", CALVE_CATALOG_URL=catalog_url).exit_code == 0
    check_published(catalog, TABLE)
    missing = calve("init", "--dry-run", CALVE_CATALOG_URL=f"sqlite:///{tmp_path}/missing.db")
    assert (missing.exit_code, missing.stderr) == (0, "")
    assert "would get the schema" in missing.stdout
    assert not (tmp_path / "missing.db").exists()
