"""Rules that the whole metadata of a table obey: readers on the JVM refuse tables that break one.

Source: the constructor of `TableMetadata` of Apache Iceberg.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from catalog.errors import InvalidTableError
from catalog.iceberg.documents.schemas import Json, highest_id
from catalog.iceberg.documents.tables import MAIN, by_id

_SKEW_MS = 60_000
"""How far times may go back, or be ahead: clocks of writers differ."""

_GROUPS = (
    ("schemas", "schema-id", "current-schema-id", "schema"),
    ("partition-specs", "spec-id", "default-spec-id", "partition spec"),
    ("sort-orders", "order-id", "default-sort-order-id", "sort order"),
)


def check_consistency(document: Json, *, newest: int = 0) -> None:
    """Check that the parts of a table's normalised metadata fit each other.

    Args:
        newest: Compare the times of only so many last entries of the logs, because others wrote those before; 0 for
            all.

    Raises:
        InvalidTableError: They do not.
    """
    for group, key, current, what in _GROUPS:
        if not document[group]:
            raise InvalidTableError(f"the table would have no {what}; add and set one")
        _refuse_repeated((line[key] for line in document[group]), key)
        by_id(document[group], key, document[current])
    if not document["location"]:
        raise InvalidTableError("the table would have no location; set one")
    _check_snapshots(document)
    _check_times(document, newest)


def check_written(document: Json, *, latest_ms: int) -> None:
    """Check what a client has counted in metadata that it has written, and its clock: later commits build on both.

    Args:
        document: Normalised and consistent metadata.
        latest_ms: The present time, or that of the metadata before, if they are later.

    Raises:
        InvalidTableError: A counter is below an id that is in use, which would be given again; or the clock is ahead.
    """
    fields = (field.get("field-id", 0) for spec in document["partition-specs"] for field in spec["fields"])
    highest = {
        "last-column-id": max(map(highest_id, document["schemas"])),
        "last-partition-id": max(fields, default=0),
    }
    for name, used in highest.items():
        if document[name] < used:
            raise InvalidTableError(
                f"the metadata have the {name} {document[name]}, below {used}, which is in use; write {used} or more"
            )
    if (updated_ms := document["last-updated-ms"]) > latest_ms + _SKEW_MS:
        raise InvalidTableError(
            f"Invalid update timestamp {updated_ms}: over a minute after {latest_ms}, now; set the clock of the writer"
        )


def _check_snapshots(document: Json) -> None:
    last, version = document["last-sequence-number"], document["format-version"]
    if version == 1 and last:
        raise InvalidTableError(f"Sequence number must be 0 in v1: {last}")
    for snapshot in document["snapshots"]:
        if (number := snapshot.get("sequence-number", 0)) > last:
            raise InvalidTableError(
                f"Invalid snapshot with sequence number {number} greater than last sequence number {last}"
            )
    _refuse_repeated((snapshot["snapshot-id"] for snapshot in document["snapshots"]), "snapshot-id")
    known = {snapshot["snapshot-id"] for snapshot in document["snapshots"]}
    for name, ref in document["refs"].items():
        if ref["snapshot-id"] not in known:
            raise InvalidTableError(f"Snapshot for reference {name} does not exist: {ref['snapshot-id']}")
    main, current = document["refs"].get(MAIN, {}).get("snapshot-id"), document["current-snapshot-id"]
    if main != current:
        raise InvalidTableError(f"Current snapshot ID does not match main branch ({current} != {main})")


def _check_times(document: Json, newest: int) -> None:
    now_ms = document["last-updated-ms"]
    for name, what in (("snapshot-log", "snapshot"), ("metadata-log", "metadata")):
        times = [entry["timestamp-ms"] for entry in document[name][-newest:]]
        for before, after in pairwise([*times, now_ms]):
            if after - before < -_SKEW_MS:
                raise InvalidTableError(
                    f"Invalid update timestamp {after}: over a minute before the {what} log entry at {before}; set "
                    "the clock of the writer"
                )


def _refuse_repeated(ids: Iterable[int], key: str) -> None:
    known = set[int]()
    for number in ids:
        if number in known:
            raise InvalidTableError(f"the metadata have the {key} {number} more than once")
        known.add(number)
