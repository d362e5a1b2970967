"""Iceberg tables as entries: pointers that move only from where they are."""

from __future__ import annotations

import json
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from catalog import Catalog
from catalog.doors.entries import Entries
from catalog.doors.entries.iceberg import identifier_of
from catalog.engine_tables.model import Commit, NewTable
from catalog.errors import (
    EntryModifiedError,
    IcebergTableError,
    InvalidRequestError,
    LocationInUseError,
    LocationNotAllowedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from catalog.iceberg.clock import now_ms
from catalog.iceberg.documents import new_tables, updates
from catalog.iceberg.documents.files import read_document
from catalog.metastores.types import HivePartition, HiveStorage, HiveTable
from catalog.model import Column
from catalog.model.identifiers import TableName
from catalog.schemes.hashing import HashScheme
from tests.support.entries import NAME, ORDERS, PARQUET
from tests.support.metadata_updates import snapshot, sort_field, to_ref, write_list

EVENTS = TableName("demo", "events")
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "Day", "required": False, "type": "date"},
    ],
}

SCHEMA_FIELD = {"id": 1, "name": "id", "required": False, "type": "long"}


@pytest.fixture
def metadata(entries: Entries) -> list[str]:
    """The locations of three metadata files of a table that the catalog has no longer, in order."""
    tables, identifier = entries.catalog.iceberg, identifier_of(TableName("demo", "made"))
    locations = [tables.create(identifier, NewTable(SCHEMA, properties={"owner": "ann"})).location]
    for number in range(2):
        updates = [{"action": "set-properties", "updates": {"n": str(number)}}]
        locations.append(tables.commit([Commit(identifier, [], updates)])[0].location)
    tables.drop(identifier)
    return [str(location) for location in locations]


def entry(metadata: str, **parameters: str) -> HiveTable:
    """Return an entry as Iceberg's HiveCatalog writes it."""
    named = {"EXTERNAL": "TRUE", "table_type": "ICEBERG", "metadata_location": metadata, **parameters}
    return HiveTable(EVENTS, "EXTERNAL_TABLE", (Column("id", "bigint"),), (), HiveStorage(), parameters=named)


def test_an_entry_with_metadata_is_an_iceberg_table(entries: Entries, metadata: list[str]) -> None:
    created = entries.create_table(entry(metadata[0]))
    assert created.columns == (Column("id", "bigint"), Column("day", "date"))
    assert (created.table_type, created.partition_keys) == ("EXTERNAL_TABLE", ())
    document = read_document(metadata[0])
    assert created.owner == "ann"
    assert created.parameters == {
        "uuid": document["table-uuid"],
        "current-schema": json.dumps(document["schemas"][0], separators=(",", ":")),
        "snapshot-count": "0",
        "EXTERNAL": "TRUE",
        "table_type": "ICEBERG",
        "metadata_location": metadata[0],
        "owner": "ann",
        "write.parquet.compression-codec": "zstd",
    }
    assert entries.tables([EVENTS]) == [entries.table(EVENTS)] == [created]
    assert entries.table_names("demo", kind="EXTERNAL_TABLE") == ["events"]
    assert entries.catalog.get_table("demo.events").is_only_iceberg
    assert list(entries.partitions(EVENTS)) == entries.partition_names(EVENTS) == []
    assert entries.statistics(EVENTS) == []
    with pytest.raises(IcebergTableError):
        entries.add_partitions(EVENTS, [HivePartition(("1",), PARQUET)])
    with pytest.raises(TableAlreadyExistsError):
        entries.create_table(entry(metadata[0]))
    with pytest.raises(TableAlreadyExistsError):
        entries.create_table(replace(ORDERS, name=EVENTS))
    entries.drop_table(EVENTS, delete_data=True)
    with pytest.raises(TableNotFoundError):
        entries.table(EVENTS)
    # Engines delete the files themselves.
    assert entries.create_table(entry(metadata[0])).parameters["metadata_location"] == metadata[0]


def test_a_pointer_moves_from_the_metadata_that_are_expected(entries: Entries, metadata: list[str]) -> None:
    entries.create_table(entry(metadata[0]))
    second = entry(metadata[1], previous_metadata_location=metadata[0])
    moved = entries.alter_table(EVENTS, second, expected=("metadata_location", metadata[0]))
    assert moved.parameters["metadata_location"] == metadata[1]
    assert moved.parameters["previous_metadata_location"] == metadata[0]
    assert moved.parameters["n"] == "0"
    third = entry(metadata[2], previous_metadata_location=metadata[0])
    for expected in (None, ("metadata_location", metadata[0])):
        with pytest.raises(EntryModifiedError, match="metadata_location"):
            entries.alter_table(EVENTS, third, expected=expected)
    assert entries.table(EVENTS) == moved
    third = entry(metadata[2], previous_metadata_location=metadata[1])
    assert entries.alter_table(EVENTS, third).parameters["n"] == "1"


def test_an_entry_that_was_read_before_a_commit_does_not_undo_it(entries: Entries, metadata: list[str]) -> None:
    first = entries.create_table(entry(metadata[0]))
    moved = entries.alter_table(EVENTS, entry(metadata[1], previous_metadata_location=metadata[0]))
    with pytest.raises(EntryModifiedError, match="metadata_location"):
        entries.alter_table(EVENTS, replace(first, parameters={**first.parameters, "note": "added"}))
    assert entries.table(EVENTS) == moved


def test_metadata_that_lack_the_current_snapshot_undo_no_commit(entries: Entries) -> None:
    tables, identifier = entries.catalog.iceberg, identifier_of(TableName("demo", "made"))
    loaded = tables.create(identifier, NewTable(SCHEMA))
    written = [str(loaded.location)]
    for number in (1, 2, 3):
        manifests = write_list(Path(loaded.document["location"], f"metadata/{number}.avro"))
        update = snapshot(loaded.document, number, manifest_list=manifests)
        [loaded] = tables.commit([Commit(identifier, [], [update, to_ref(number)])])
        written.append(str(loaded.location))
    stale, current = written[2:]
    document = read_document(stale)
    # Of another client, which has loaded the table before the last commit.
    [*before, last] = document["snapshots"]
    other = {**last, "snapshot-id": 4, "sequence-number": 3, "parent-snapshot-id": last["snapshot-id"]}
    refs = {"main": {"snapshot-id": 4, "type": "branch"}}
    document |= {"snapshots": [*before, last, other], "current-snapshot-id": 4, "refs": refs, "last-sequence-number": 3}
    on_stale = current.rpartition("/")[0] + "/00009-stale.metadata.json"
    Path(on_stale).write_text(json.dumps(document))
    made = entries.table(TableName("demo", "made"))
    for metadata in (*written[:3], on_stale):
        named = {**made.parameters, "metadata_location": metadata, "previous_metadata_location": current}
        with pytest.raises(InvalidRequestError, match="would undo commits"):
            entries.alter_table(made.name, replace(made, parameters=named))
    assert entries.table(made.name) == made


def written(path: str, **changes: Any) -> str:
    """Write the metadata of a file beside it, with changes; return their location."""
    document = read_document(path)
    location = changes.pop("beside", path).rpartition("/")[0] + f"/{uuid4()}.metadata.json"
    Path(location).parent.mkdir(parents=True, exist_ok=True)
    Path(location).write_text(json.dumps({**document, **changes}))
    return location


def pointed(entries: Entries, name: str, metadata: str) -> None:
    """Have a client of Glue or Hive move the pointer of a table."""
    made = entries.table(TableName("demo", name))
    named = {"metadata_location": metadata, "previous_metadata_location": made.parameters["metadata_location"]}
    entries.alter_table(made.name, replace(made, parameters={**made.parameters, **named}))


@pytest.mark.parametrize("folder", ["metadata", "_iceberg/metadata", "of_another/metadata"])
def test_metadata_in_a_folder_of_others_do_not_give_it_to_the_table(entries: Entries, folder: str) -> None:
    tables = entries.catalog.iceberg
    made, other = (
        str(tables.create(identifier_of(TableName("demo", name)), NewTable(SCHEMA)).location) for name in "ab"
    )
    warehouse = Path(read_document(made)["location"]).parents[1]
    home = Path(read_document(other)["location"]) if folder.startswith("of_another") else warehouse
    moved = written(made, beside=f"{home}/{folder.removeprefix('of_another/')}/x")
    with pytest.raises((LocationInUseError, LocationNotAllowedError)):
        pointed(entries, "a", moved)
    with pytest.raises((LocationInUseError, LocationNotAllowedError)):
        tables.register(identifier_of(TableName("demo", "c")), moved)
    entries.catalog.create_table("demo.later", columns=[("v", "int")])
    tables.create(identifier_of(TableName("demo", "last")), NewTable(SCHEMA))


def test_metadata_may_be_in_a_free_folder_of_their_own(entries: Entries, tmp_path: Path) -> None:
    tables = entries.catalog.iceberg
    made = str(tables.create(identifier_of(TableName("demo", "a")), NewTable(SCHEMA)).location)
    pointed(entries, "a", written(made, beside=str(tmp_path / "free" / "metadata" / "x")))
    with pytest.raises(LocationInUseError):
        tables.create(identifier_of(TableName("demo", "b")), NewTable(SCHEMA, str(tmp_path / "free" / "b")))


def test_a_table_in_a_folder_that_is_called_like_one_of_metadata_does_not_get_that_around_it(
    entries: Entries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = str(entries.catalog.iceberg.create(identifier_of(TableName("demo", "a")), NewTable(SCHEMA)).location)
    for name in ("metadata", "_iceberg"):
        allowed = tmp_path / name
        monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", str(allowed))
        moved = written(made, beside=str(allowed / "x"), location=str(allowed / "t"))
        with pytest.raises(LocationNotAllowedError, match="folder of metadata"):
            entries.catalog.iceberg.register(identifier_of(TableName("demo", "b")), moved)
        new = NewTable(SCHEMA, str(allowed))
        if name == "_iceberg":
            with pytest.raises(LocationNotAllowedError, match="folder of metadata"):
                entries.catalog.iceberg.create(identifier_of(TableName("demo", "c")), new)


def test_a_pointer_moves_to_no_metadata_that_a_commit_would_not_make(entries: Entries) -> None:
    entries.catalog.create_table(
        "demo.own", columns=[("id", "bigint")], partition_keys=[("day", "int")], format="iceberg"
    )
    entries.catalog.iceberg.create(identifier_of(TableName("demo", "a")), NewTable(SCHEMA))
    own, made = (entries.table(TableName("demo", name)).parameters["metadata_location"] for name in ("own", "a"))
    line = {"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": read_document(made)["last-updated-ms"]}
    listed = {**line, "manifest-list": f"{made}-missing.avro", "summary": {"operation": "append"}, "schema-id": 0}
    refs = {"main": {"snapshot-id": 1, "type": "branch"}}
    fewer = {**SCHEMA, "fields": [SCHEMA_FIELD]}
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "p", "transform": "identity"}]}
    added = {"snapshots": [listed], "current-snapshot-id": 1, "refs": refs, "last-sequence-number": 1}
    for name, metadata, problem in (
        ("own", written(own, **{"format-version": 3, "next-row-id": 0}), "leave out the upgrade to 3"),
        ("own", written(own, **{"format-version": 1}), "leave out the upgrade to 1"),
        ("a", written(made, **{"last-sequence-number": 2**63 - 1}), "leaves too few for later commits"),
        (
            "a",
            written(made, **{"last-column-id": 1}),
            "the last-column-id 1, below 2, which is in use; write 2 or more",
        ),
        ("a", written(made, schemas=[fewer], **{"last-column-id": 1}), "has the last-column-id 2, and the metadata 1"),
        ("a", written(made, **{"partition-specs": [spec]}), "the last-partition-id 999, below 1000, which is in use"),
        (
            "a",
            written(made, **{"last-updated-ms": now_ms() + 90_000}),
            "over a minute after .* the clock of the writer",
        ),
        ("a", written(made, **added), "the manifest list .* cannot be read: FileNotFoundError"),
    ):
        with pytest.raises(InvalidRequestError, match=problem):
            pointed(entries, name, metadata)


def test_a_table_whose_time_is_ahead_gets_metadata_of_that_time(
    entries: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, identifier = entries.catalog.iceberg, identifier_of(TableName("demo", "a"))
    with monkeypatch.context() as ahead:
        for module in (updates, new_tables):
            ahead.setattr(module, "now_ms", lambda: now_ms() + 3_600_000)
        made = tables.create(identifier, NewTable(SCHEMA))
    pointed(entries, "a", written(str(made.location), properties={"n": "1"}))
    assert entries.table(TableName("demo", "a")).parameters["n"] == "1"
    with pytest.raises(InvalidRequestError, match="the clock of the writer"):
        tables.register(identifier_of(TableName("demo", "b")), written(str(made.location)))


def test_an_iceberg_table_gets_another_name(entries: Entries, metadata: list[str]) -> None:
    created = entries.create_table(entry(metadata[0]))
    new = TableName("default", "renamed")
    assert entries.alter_table(EVENTS, replace(created, name=new)) == replace(created, name=new)
    assert entries.table_names("demo") == []


def test_a_table_gets_no_metadata_of_another_one(entries: Entries, metadata: list[str]) -> None:
    created = entries.create_table(entry(metadata[0]))
    identifier = identifier_of(TableName("demo", "other"))
    other = entries.catalog.iceberg.create(identifier, NewTable(SCHEMA)).location
    assert other is not None
    own, foreign = (read_document(location) for location in (metadata[1], other))
    uuid = {"table-uuid": own["table-uuid"]}
    elsewhere = f"{own['location']}-moved"
    folder = metadata[1].rpartition("/")[0]
    for number, (document, location) in enumerate(
        [
            (foreign, created.location),
            ({**own, "table-uuid": str(uuid4())}, created.location),
            ({**foreign, **uuid}, created.location),
            ({**foreign, **uuid}, foreign["location"]),
            ({**own, "location": elsewhere}, created.location),
            ({**own, "location": elsewhere}, None),
        ]
    ):
        path = Path(folder, f"0000{number}-x.metadata.json")
        path.write_text(json.dumps(document))
        given = entry(str(path), previous_metadata_location=metadata[0])
        with pytest.raises((InvalidRequestError, LocationInUseError), match=r"uuid|to move the table|demo\.other"):
            entries.alter_table(EVENTS, replace(given, location=location))
    assert entries.table(EVENTS) == created
    moved = replace(given, location=elsewhere)
    assert entries.alter_table(EVENTS, moved).location == elsewhere


def test_metadata_elsewhere_are_refused(entries: Entries, metadata: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entries.create_table(entry(metadata[0]))
    monkeypatch.setenv("CALVE_ALLOWED_LOCATIONS", "/nowhere")
    monkeypatch.delenv("CALVE_WAREHOUSE")
    with pytest.raises(LocationNotAllowedError):
        entries.alter_table(EVENTS, entry(metadata[1]))
    with pytest.raises(LocationNotAllowedError):
        entries.create_table(replace(entry(metadata[1]), name=TableName("demo", "more")))


def test_a_table_with_a_scheme_is_shown_as_iceberg(entries: Entries) -> None:
    entries.catalog.create_table(
        "demo.placed", columns=[("id", "bigint"), ("v", "string")], scheme=HashScheme("id", "bigint", count=2)
    )
    shown = entries.table(TableName("demo", "placed"))
    assert shown.parameters["table_type"] == "ICEBERG"
    assert shown.parameters["metadata_location"] == entries.catalog.get_table("demo.placed").live_location
    assert {column.name for column in shown.columns} == {"id", "v"}
    assert entries.tables([shown.name]) == [shown]


def test_a_hive_table_becomes_an_iceberg_table(entries: Entries, metadata: list[str]) -> None:
    orders = entries.create_table(ORDERS)
    entries.add_partitions(NAME, [HivePartition(("DE", "1"), PARQUET)])
    named = {**orders.parameters, "table_type": "iceberg", "metadata_location": metadata[0]}
    migrated = entries.alter_table(NAME, replace(orders, parameters=named))
    assert migrated.parameters["metadata_location"] == metadata[0]
    assert migrated.columns == (Column("id", "bigint"), Column("day", "date"))
    assert migrated.owner == "ann"
    table = entries.catalog.get_table("demo.orders")
    assert table.is_iceberg
    assert not table.is_only_iceberg
    assert entries.partition_names(NAME) == []
    assert [version.number for version in entries.versions(NAME)] == [1, 0]
    moved = entries.alter_table(NAME, replace(migrated, parameters={**named, "metadata_location": metadata[1]}))
    assert moved.parameters["previous_metadata_location"] == metadata[0]


def test_a_hive_table_becomes_no_iceberg_table_with_manifests_that_do_not_exist(
    entries: Entries, metadata: list[str]
) -> None:
    orders = entries.create_table(ORDERS)
    document = read_document(metadata[0])
    folder = Path(document["location"], "metadata")
    line = snapshot(document, 1, manifest_list=write_list(folder / "snap-1.avro", folder / "missing.avro"))["snapshot"]
    refs = {"main": {"snapshot-id": 1, "type": "branch"}}
    added = {"snapshots": [line], "current-snapshot-id": 1, "refs": refs, "last-sequence-number": 1}
    broken = written(metadata[0], **added)
    named = {**orders.parameters, "table_type": "iceberg", "metadata_location": broken}
    with pytest.raises(InvalidRequestError, match=r"the manifest .*/missing\.avro of snapshot 1 cannot be read"):
        entries.alter_table(NAME, replace(orders, parameters=named))
    assert not entries.catalog.get_table("demo.orders").is_iceberg


def test_an_entry_that_names_the_folder_of_the_table_is_not_yet_an_iceberg_table(
    entries: Entries, metadata: list[str]
) -> None:
    # Trino's procedure `migrate` changes the entry twice.
    orders = entries.create_table(ORDERS)
    entries.add_partitions(NAME, [HivePartition(("DE", "1"), PARQUET)])
    prepared = {**orders.parameters, "table_type": "ICEBERG", "metadata_location": f"file:{orders.location}"}
    shown = entries.alter_table(NAME, replace(orders, parameters=prepared))
    assert shown.parameters == prepared
    assert shown.partition_keys == orders.partition_keys
    assert entries.partition_names(NAME) == ["country=DE/day=1"]
    committed = {**prepared, "metadata_location": metadata[0], "previous_metadata_location": f"file:{orders.location}"}
    with pytest.raises(EntryModifiedError, match="metadata_location"):
        entries.alter_table(NAME, replace(shown, parameters=committed), expected=("metadata_location", "/elsewhere"))
    expected = ("metadata_location", f"file:{orders.location}")
    migrated = entries.alter_table(NAME, replace(shown, parameters=committed), expected=expected)
    assert migrated.parameters["metadata_location"] == metadata[0]
    assert "previous_metadata_location" not in migrated.parameters
    assert entries.catalog.get_table("demo.orders").is_iceberg
    # Readers of a former version, and of the table after a revert, must not take it for an Iceberg table.
    assert entries.versions(NAME)[1].entry.parameters == orders.parameters
    entries.catalog.migrations.revert("back", "demo.orders", lose_data=True)
    assert entries.table(NAME).parameters == orders.parameters
    assert entries.partition_names(NAME) == ["country=DE/day=1"]


def move(url: str, before: str, after: str, results: Any) -> None:
    with Catalog.open(url, warehouse="/tmp") as catalog:
        entries = Entries(catalog)
        try:
            entries.alter_table(EVENTS, entry(after), expected=("metadata_location", before))
            results.put(after)
        except EntryModifiedError:
            results.put(None)


def test_of_two_commits_at_once_one_wins(entries: Entries, metadata: list[str], catalog_url: str) -> None:
    entries.create_table(entry(metadata[0]))
    context = get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=move, args=(catalog_url, metadata[0], after, results)) for after in metadata[1:]]
    for worker in workers:
        worker.start()
    ends = {results.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join(60)
    [winner] = ends - {None}
    assert None in ends
    assert entries.table(EVENTS).parameters["metadata_location"] == winner


def test_an_entry_has_what_a_metastore_keeps_of_the_metadata(entries: Entries) -> None:
    tables, name = entries.catalog.iceberg, TableName("demo", "kept")
    spec = {"fields": [{"name": "day_month", "transform": "month", "source-id": 2}]}
    properties = {"hive.metastore.table.owner": "eve", "owner": "ann"}
    new = NewTable(SCHEMA, spec=spec, order={"fields": [sort_field(1)]}, properties=properties)
    made = tables.create(identifier_of(name), new).document
    totals = {"total-records": "7", "total-data-files": "2", "total-files-size": "900"}
    more = {"summary": {"operation": "append", **totals}, "manifest_list": f"{made['location']}/metadata/1.avro"}
    write_list(Path(made["location"], "metadata/1.avro"))
    tables.commit([Commit(identifier_of(name), [], [snapshot(made, 5, **more), to_ref(5)])])
    shown = entries.table(name)
    assert shown.owner == "eve"
    parameters = shown.parameters
    assert (parameters["uuid"], parameters["snapshot-count"]) == (made["table-uuid"], "1")
    assert parameters["current-snapshot-id"] == "5"
    assert parameters["current-snapshot-timestamp-ms"] == str(made["last-updated-ms"] + 1)
    assert json.loads(parameters["current-snapshot-summary"]) == totals
    assert json.loads(parameters["current-schema"]) == made["schemas"][0]
    assert json.loads(parameters["default-partition-spec"]) == made["partition-specs"][0]
    assert json.loads(parameters["default-sort-order"]) == made["sort-orders"][0]
    assert [parameters[total] for total in ("numRows", "numFiles", "totalSize")] == ["7", "2", "900"]
    assert "hive.metastore.table.owner" not in parameters
    wide = {"type": "struct", "fields": [{**SCHEMA_FIELD, "doc": "x" * 40_000}]}
    tables.create(identifier_of(TableName("demo", "wide")), NewTable(wide))
    assert "current-schema" not in entries.table(TableName("demo", "wide")).parameters


def test_hive_reads_a_table_that_is_enabled_for_it(entries: Entries) -> None:
    for name, properties in (("plain", {}), ("for_hive", {"engine.hive.enabled": "true"})):
        identifier = identifier_of(TableName("demo", name))
        entries.catalog.iceberg.create(identifier, NewTable(SCHEMA, properties=properties))
    plain, for_hive = (entries.table(TableName("demo", name)) for name in ("plain", "for_hive"))
    assert "storage_handler" not in plain.parameters
    assert plain.storage.serde == "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
    assert for_hive.parameters["storage_handler"] == "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
    assert for_hive.storage.serde == "org.apache.iceberg.mr.hive.HiveIcebergSerDe"
    assert for_hive.storage.input_format == "org.apache.iceberg.mr.hive.HiveIcebergInputFormat"
