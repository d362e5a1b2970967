"""Summaries of snapshots: the operation, what it added and removed, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from catalog.iceberg.manifests import WrittenManifest


def summary_of(
    written: Iterable[WrittenManifest],
    sizes: tuple[int, int],
    deletes: Mapping[str, str],
    parent: Snapshot | None,
    marks: Mapping[str, str],
    *,
    is_overwrite: bool = False,
) -> Summary:
    """Return the summary of a snapshot; the operation follows from the numbers of added and removed rows.

    Args:
        written: The new manifests.
        sizes: The bytes of added and of removed files.
        deletes: The totals of delete files.
        marks: Further entries.
        is_overwrite: Other rows replace the removed ones, also if there are as many.
    """
    added_bytes, removed_bytes = sizes
    added_files, added_rows, removed_files, removed_rows = (
        sum(counts)
        for counts in zip(
            (0, 0, 0, 0), *((new.file_count, new.row_count, *new.deleted) for new in written), strict=True
        )
    )
    if not removed_files:
        operation = Operation.APPEND if added_files else Operation.REPLACE
    elif added_rows == removed_rows and not is_overwrite:
        operation = Operation.REPLACE
    else:
        operation = Operation.OVERWRITE if added_files else Operation.DELETE
    figures = {
        "added-data-files": added_files,
        "added-records": added_rows,
        "added-files-size": added_bytes,
        "deleted-data-files": removed_files,
        "deleted-records": removed_rows,
        "removed-files-size": removed_bytes,
    }
    before = {} if parent is None or parent.summary is None else parent.summary.additional_properties
    totals = {
        "total-data-files": added_files - removed_files,
        "total-records": added_rows - removed_rows,
        "total-files-size": added_bytes - removed_bytes,
    }
    return Summary(
        operation,
        **{name: str(number) for name, number in figures.items() if number},
        **{name: str(int(before.get(name, 0)) + number) for name, number in totals.items()},
        **deletes,
        **marks,
    )
