"""Migrations that flip the table's entry in its source metastore, and reverts that restore it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from catalog import Catalog
from catalog.errors import InvalidRequestError, SourceEntryChangedError, SourceUnavailableError
from catalog.migration.requests import MigrationRequest
from catalog.operations.records import OperationState
from tests.support.hive_metastore import HiveMetastoreServer, Metastore
from tests.support.iceberg_tables import COLUMNS, KEYS, stage

# Starts a JVM.
pytestmark = pytest.mark.spark

DATABASE, TABLE = "sales", "sales.orders"
FLIPPED = MigrationRequest(verify=False, flip_source=True)


@pytest.fixture
def metastore(hive_metastore: HiveMetastoreServer) -> Iterator[Metastore]:
    with hive_metastore.client() as source:
        yield Metastore(hive_metastore, source, DATABASE)
    hive_metastore.drop_database(DATABASE)


@pytest.fixture
def imported(catalog: Catalog, metastore: Metastore) -> Metastore:
    """A metastore with a table of two partitions, which the catalog has imported."""
    metastore.create()
    metastore.add([("2024-01-01", "a"), ("2024-01-02", "b")])
    for number in range(2):
        folder = Path(metastore.root.removeprefix("file:"), "own", str(number))
        folder.mkdir(parents=True, exist_ok=True)
        rows = {"id": pyarrow.array([number], pyarrow.int64()), "name": pyarrow.array([f"n{number}"])}
        pyarrow.parquet.write_table(pyarrow.table(rows), folder / "part-0.parquet")
    catalog.imports.import_tables(metastore.address, [DATABASE])
    return metastore


def migrate(catalog: Catalog, request: MigrationRequest = FLIPPED) -> dict[str, Any]:
    operation = catalog.migrations.begin("m1", TABLE, request)
    if not operation.is_committed:
        stage(catalog, operation)
    return catalog.migrations.flip("m1")


def rows_through_the_metastore(metastore: Metastore) -> list[dict[str, Any]]:
    from pyiceberg.catalog.hive import HiveCatalog

    found = HiveCatalog("hive", uri=f"thrift{metastore.address.removeprefix('hms')}").load_table(TABLE)
    return sorted(found.scan(selected_fields=("id", "s")).to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def test_whoever_asks_the_metastore_finds_the_iceberg_table_and_after_a_revert_the_hive_table(
    catalog: Catalog, imported: Metastore
) -> None:
    before = imported.table()
    report = migrate(catalog)
    assert imported.table().parameters["metadata_location"] == report["metadata_location"]
    assert report["rows"] == 2
    assert rows_through_the_metastore(imported) == [{"id": 0, "s": "a"}, {"id": 1, "s": "b"}]
    assert migrate(catalog) == report

    reverted = catalog.migrations.revert("r1", TABLE)
    assert imported.table() == before
    assert catalog.migrations.revert("r1", TABLE) == reverted
    assert not catalog.get_table(TABLE).is_iceberg


def test_an_entry_is_left_alone_unless_that_was_asked(catalog: Catalog, imported: Metastore) -> None:
    before = imported.table()
    migrate(catalog, MigrationRequest(verify=False))
    catalog.migrations.revert("r1", TABLE)
    assert imported.table() == before


def test_a_table_that_was_never_imported_is_refused_before_anything_is_journaled(catalog: Catalog) -> None:
    catalog.create_table("demo.own", columns=COLUMNS, partition_keys=KEYS)
    with pytest.raises(InvalidRequestError, match=r"demo\.own was not imported from a metastore"):
        catalog.migrations.begin("m1", "demo.own", FLIPPED)
    assert catalog.operations.find("m1") is None


def test_what_was_committed_through_the_metastore_is_only_lost_when_told(catalog: Catalog, imported: Metastore) -> None:
    before = imported.table()
    migrate(catalog)
    imported.alter(metadata_location="elsewhere")
    with pytest.raises(SourceEntryChangedError, match=r"parameters\.metadata_location; nothing was changed.*lose_data"):
        catalog.migrations.revert("r1", TABLE)
    assert catalog.get_table(TABLE).is_iceberg
    catalog.migrations.revert("r2", TABLE, lose_data=True)
    assert imported.table() == before


def test_a_metastore_that_did_not_answer_is_flipped_by_the_next_try(
    catalog: Catalog, imported: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> bool:
        raise SourceUnavailableError("it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr("catalog.migration.source_entries.flip_source", silent)
        with pytest.raises(SourceUnavailableError):
            migrate(catalog)
    assert catalog.operations.get("m1").state is OperationState.COMMITTED
    assert "metadata_location" not in imported.table().parameters
    report = migrate(catalog)
    assert imported.table().parameters["metadata_location"] == report["metadata_location"]
