"""Files that a writer names in metadata are read only in the table's folder and in allowed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile, write_manifest_list
from pyiceberg.table.metadata import TableMetadata

from catalog import Catalog
from catalog.errors import LocationNotAllowedError, UnknownIcebergTypeError, UnreadableMetadataError
from catalog.iceberg.allowed_files import folders_of_files, require_allowed_metadata
from catalog.iceberg.deletes import delete_file_count, files_with_deletes
from catalog.iceberg.described import read_snapshots
from catalog.iceberg.differences import Versions
from catalog.iceberg.metadata import current_manifests, read_metadata
from catalog.iceberg.named_files import UnreadableFileError, data_paths, logged_files, metadata_paths, superseded_files
from catalog.iceberg.pointers import Pointer, find_pointer
from catalog.iceberg.snapshots import known_metadata
from tests.support.iceberg_tables import NAME as NAME_OF_ORDERS
from tests.support.iceberg_tables import append, change_by_engine, iceberg_rows, make_orders, migrate, sql_catalog

NAME = "lake.t"


@pytest.fixture
def location(catalog: Catalog, catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Metadata of a table with one snapshot, in an allowed folder."""
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path / "warehouse"))
    catalog.create_database("lake")
    with sql_catalog(catalog_url) as iceberg:
        iceberg.create_namespace_if_not_exists("lake")
        folder = f"file://{tmp_path}/warehouse/t"
        iceberg.create_table(NAME, pa.schema([("id", pa.int64())]), location=folder).append(pa.table({"id": [1]}))
    with catalog.storage.read() as connection:
        found = find_pointer(connection, "lake", "t")
    assert found is not None
    return found


def outside(location: str, secret: Path, kind: str) -> str:
    """Write metadata of which one file is in a folder that is not allowed; return their location."""
    document = json.loads(Path(location.removeprefix("file://")).read_text())
    secret.mkdir()
    snapshot = document["snapshots"][0]
    listed = Path(snapshot["manifest-list"].removeprefix("file://"))
    if kind == "manifest list":
        moved = secret / listed.name
        moved.write_bytes(listed.read_bytes())
        snapshot["manifest-list"] = f"file://{moved}"
    elif kind == "manifest":
        metadata = read_metadata(location)
        (manifest,) = current_manifests(metadata)
        moved = secret / "m0.avro"
        moved.write_bytes(Path(manifest.manifest_path.removeprefix("file://")).read_bytes())
        write_list(metadata, listed, manifest, f"file://{moved}")
    else:
        entry = {"snapshot-id": snapshot["snapshot-id"], "statistics-path": f"file://{secret}/s.puffin"}
        document["statistics"] = [
            {**entry, "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        ]
    target = location.replace(".metadata.json", "-moved.metadata.json")
    Path(target.removeprefix("file://")).write_text(json.dumps(document))
    return target


def write_list(metadata: TableMetadata, target: Path, manifest: ManifestFile, path: str) -> None:
    """Write a manifest list with a manifest under another path."""
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    manifest[0] = path
    target.unlink()
    output = PyArrowFileIO().new_output(f"file://{target}")
    with write_manifest_list(2, output, snapshot.snapshot_id, None, snapshot.sequence_number or 1, "deflate") as writer:
        writer.add_manifests([manifest])


READERS: dict[str, Callable[[str], Any]] = {
    "manifests": lambda location: [
        manifest.fetch_manifest_entry(io_of(location)) for manifest in current_manifests(read_metadata(location))
    ],
    "metadata_paths": lambda location: list(metadata_paths(Pointer("", "", "", location))),
    "data_paths": lambda location: list(data_paths(Pointer("", "", "", location))),
    "superseded_files": lambda location: superseded_files(location, location),
    "logged_files": lambda location: list(logged_files(location)),
    "delete_file_count": delete_file_count,
    "files_with_deletes": files_with_deletes,
    "differences": lambda location: Versions(location, location).since(None),
    "known_metadata": lambda location: current_manifests(known_metadata(location)),
}


def io_of(location: str) -> Any:
    from catalog.iceberg.storage import file_io

    return file_io(location)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_a_manifest_list_in_another_folder(location: str, tmp_path: Path, reader: str) -> None:
    READERS[reader](location)
    moved = outside(location, tmp_path / "secret", "manifest list")
    with pytest.raises((UnreadableFileError, LocationNotAllowedError), match="outside all allowed folders"):
        READERS[reader](moved)


OF_MANIFESTS = {"manifests", "data_paths", "logged_files", "differences"}


@pytest.mark.parametrize("reader", sorted(OF_MANIFESTS))
def test_every_reader_of_manifests_refuses_one_in_another_folder(location: str, tmp_path: Path, reader: str) -> None:
    moved = outside(location, tmp_path / "secret", "manifest")
    with pytest.raises((UnreadableFileError, LocationNotAllowedError), match="outside all allowed folders"):
        READERS[reader](moved)


@pytest.mark.parametrize("kind", ["manifest list", "manifest", "statistics"])
def test_no_file_of_metadata_is_opened_by_iceberg_in_another_folder(
    catalog: Catalog, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folders = folders_of_files(catalog.storage, catalog.get_table(NAME))
    require_allowed_metadata(location, folders)
    moved = outside(location, tmp_path / "secret", kind)
    for is_of_all in (False, True):
        with pytest.raises(LocationNotAllowedError, match=r"secret.* is outside all allowed folders"):
            require_allowed_metadata(moved, folders, all_snapshots=is_of_all)
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(tmp_path))
    require_allowed_metadata(moved, folders)


def with_variant(location: str) -> str:
    """Write metadata with a column of the type variant; return their location."""
    document = json.loads(Path(location.removeprefix("file://")).read_text())
    fields = [{"id": 8, "name": "v", "type": "variant", "required": False}]
    column = {"id": 9, "name": "s", "type": {"type": "struct", "fields": fields}, "required": False}
    document["schemas"][0]["fields"].append(column)
    target = location.replace(".metadata.json", "-variant.metadata.json")
    Path(target.removeprefix("file://")).write_text(json.dumps({**document, "format-version": 3, "next-row-id": 0}))
    return target


def test_files_of_a_table_with_a_type_of_engines_are_checked(
    catalog: Catalog, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = folders_of_files(catalog.storage, catalog.get_table(NAME))
    snapshot_id = read_metadata(location).current_snapshot_id
    assert require_allowed_metadata(with_variant(location), folders, all_snapshots=True) == snapshot_id
    moved = with_variant(outside(location, tmp_path / "secret", "manifest"))
    with pytest.raises(LocationNotAllowedError, match=r"secret.* is outside all allowed folders"):
        require_allowed_metadata(moved, folders)


def test_a_type_that_only_engines_know_is_named(location: str) -> None:
    written = with_variant(location)
    with pytest.raises(UnknownIcebergTypeError, match=r"table in .*/t has the column s\.v of the type variant"):
        read_metadata(written)
    with pytest.raises(UnreadableFileError, match=r"the column s\.v of the type variant"):
        known_metadata(written)
    with pytest.raises(UnreadableMetadataError, match=r"lake\.t: .*the column s\.v of the type variant"):
        read_snapshots("lake.t", written)


def test_earlier_metadata_in_another_folder_are_not_read(location: str, tmp_path: Path) -> None:
    path = Path(location.removeprefix("file://"))
    foreign = tmp_path / "secret" / "v0.metadata.json"
    foreign.parent.mkdir()
    secret = {"format-version": 2, "statistics": [{"snapshot-id": 1, "statistics-path": "SECRET"}]}
    foreign.write_text(json.dumps(secret))
    document = json.loads(path.read_text())
    known = len(list(logged_files(location)))
    document["metadata-log"] = [{"metadata-file": str(foreign), "timestamp-ms": 1}, *document["metadata-log"]]
    path.write_text(json.dumps(document))
    named = list(logged_files(location))
    assert "SECRET" not in named
    # Its name is one of the files that the metadata have.
    assert len(named) == known + 1


@pytest.mark.parametrize("kind", ["scheme", "iceberg", "migrated"])
def test_tables_below_their_database_need_no_setting(
    catalog: Catalog, catalog_url: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "")
    if kind == "migrated":
        make_orders(catalog)
        migrate(catalog)
        append(catalog_url, [8])
        assert len(iceberg_rows(catalog_url)) == 8
        table = catalog.get_table(NAME_OF_ORDERS)
        assert table.metadata_location is not None
        require_allowed_metadata(table.metadata_location, folders_of_files(catalog.storage, table), all_snapshots=True)
    else:
        change_by_engine(catalog, catalog_url, kind)
        table = catalog.get_table("demo.t")
        assert table.live_location == table.published_location
        catalog.alter_table("demo.t", properties={"a": "b"})
    assert catalog.vacuum(grace=timedelta(0)).problems == ()
