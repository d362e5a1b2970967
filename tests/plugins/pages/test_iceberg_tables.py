"""What the pages say about tables that Iceberg's metadata define, and about those that other engines write to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import Catalog
from catalog.partitions.counting import TableSize
from tests.support.iceberg_tables import make_orders, migrate

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]  # Airflow's own

NAME = "demo.orders"


@pytest.fixture
def metadata(catalog: Catalog) -> Path:
    """The metadata file of a migrated table."""
    catalog.create_database("demo", if_not_exists=True)
    make_orders(catalog, NAME)
    migrate(catalog, NAME)
    location = catalog.get_table(NAME).metadata_location
    assert location is not None
    return Path(location.removeprefix("file:"))


def size(catalog: Catalog) -> TableSize | None:
    """Return the size that the pages show."""
    from calve_airflow.pages import table_pages

    # As after 15 seconds.
    table_pages._attempts.forget()
    return table_pages.shown_size(catalog, catalog.get_table(NAME))


def test_a_size_that_could_not_be_read_is_read_again(catalog: Catalog, metadata: Path) -> None:
    from calve_airflow.pages import table_pages

    aside = metadata.rename(metadata.with_suffix(".aside"))
    assert size(catalog) is None
    aside.rename(metadata)
    # The storage is not asked by each request.
    assert table_pages.shown_size(catalog, catalog.get_table(NAME)) is None
    found = size(catalog)
    assert found is not None
    assert (found.files, found.rows) == (4, 7)


def test_totals_that_a_snapshot_lacks_are_unknown_and_without_snapshot_none(catalog: Catalog, metadata: Path) -> None:
    from calve_airflow.pages import table_pages

    document = json.loads(metadata.read_text())
    for snapshot in document["snapshots"]:
        del snapshot["summary"]["total-records"]
    metadata.write_text(json.dumps(document))
    assert size(catalog) is None
    table_pages._snapshots.forget()
    document |= {"snapshots": [], "refs": {}, "snapshot-log": [], "current-snapshot-id": -1}
    metadata.write_text(json.dumps(document))
    assert size(catalog) == TableSize()


def test_deletes_and_commits_that_are_not_taken_in_are_told(catalog: Catalog, metadata: Path) -> None:
    from calve_airflow.pages.engine_writes import unseen_writes
    from calve_airflow.pages.table_pages import _delete_files

    table = catalog.get_table(NAME)
    assert _delete_files(catalog, table) == 0
    assert unseen_writes(table, 0) is None
    assert "are deleted in 1 delete file;" in (unseen_writes(table, 1) or "")
    assert "has not taken in" in (unseen_writes(replace(table, live_location="v2", published_location="v1"), 0) or "")
    document = json.loads(metadata.read_text())
    document["snapshots"][-1]["summary"]["total-delete-files"] = "3"
    # Metadata files never change: this is another one.
    other = metadata.with_name("00001-other.metadata.json")
    other.write_text(json.dumps(document))
    metadata.write_text(json.dumps(document))
    assert _delete_files(catalog, replace(table, metadata_location=str(other))) == 3
