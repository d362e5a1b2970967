"""The snapshots of an Iceberg table, as its metadata file describes them; no manifest is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import UnknownIcebergTypeError
from catalog.iceberg.metadata import read_metadata
from catalog.iceberg.storage import metadata_error

_LATEST = 20
_TOTALS = ("total-data-files", "total-records", "total-files-size", "total-delete-files")


@dataclass(frozen=True)
class SnapshotLine:
    """A snapshot.

    Attributes:
        operation: For instance append.
    """

    id: int
    at_ms: int
    operation: str
    added_files: int | None
    added_rows: int | None
    removed_files: int | None


@dataclass(frozen=True)
class TableSnapshots:
    """An Iceberg table as its metadata file describes it.

    Attributes:
        location: The metadata file.
        partitioned_by: The fields of the partition spec, such as `days(at)`.
        files, rows, size_bytes, delete_files: Of the current snapshot, as its summary says; None if it does not. 0 in a
            table without a snapshot.
        count: The number of snapshots.
        latest: The latest ones, newest first.
    """

    location: str
    format_version: int
    partitioned_by: Sequence[str]
    files: int | None
    rows: int | None
    size_bytes: int | None
    delete_files: int | None
    count: int
    latest: Sequence[SnapshotLine]


def read_snapshots(table: str, location: str) -> TableSnapshots:
    """Return what a metadata file says.

    Raises:
        UnreadableMetadataError: It is missing or damaged.
        StorageError: The storage did not answer.
    """
    try:
        metadata = read_metadata(location)
    except (OSError, ValueError, ValidationError, UnknownIcebergTypeError) as error:
        raise metadata_error(table, location, str(error).split("\n")[0], error) from error
    current = metadata.current_snapshot()
    totals = _summary(current) if current is not None else dict.fromkeys(_TOTALS, "0")
    files, rows, size_bytes, delete_files = (_number(totals, name) for name in _TOTALS)
    schema = metadata.schema()
    fields = [f"{schema.find_column_name(field.source_id)} {field.transform}" for field in metadata.spec().fields]
    newest = sorted(metadata.snapshots, key=lambda snapshot: -snapshot.timestamp_ms)[:_LATEST]
    return TableSnapshots(
        location,
        metadata.format_version,
        [field.removesuffix(" identity") for field in fields],
        files=files,
        rows=rows,
        size_bytes=size_bytes,
        delete_files=delete_files,
        count=len(metadata.snapshots),
        latest=[_line(snapshot) for snapshot in newest],
    )


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _number(summary: Mapping[str, str], name: str) -> int | None:
    text = summary.get(name)
    return int(text) if text is not None and text.isdecimal() else None


def _line(snapshot: Snapshot) -> SnapshotLine:
    summary = _summary(snapshot)
    operation = snapshot.summary.operation.value if snapshot.summary is not None else ""
    added, rows, removed = (
        _number(summary, name) for name in ("added-data-files", "added-records", "deleted-data-files")
    )
    return SnapshotLine(snapshot.snapshot_id, snapshot.timestamp_ms, operation, added, rows, removed)
