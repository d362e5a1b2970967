"""Loads of data files that are only in the catalog and in manifests: commits are measured without writing rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from catalog import Catalog
from catalog.datafiles.committing import FileChange
from catalog.datafiles.files import ColumnStatistics, NewFile
from catalog.datafiles.manifest import write_manifest
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import OperationKind
from catalog.schemes.ranges import RangeScheme

_BYTES = 1_000_000


def load(catalog: Catalog, name: str, operation_id: str, values: Iterable[tuple[int, int]], rows: int) -> None:
    """Commit a load of a file for each pair of least and greatest values.

    Args:
        name: A table of ranges, with only bigint columns.
        rows: The number of rows in each file.
    """
    operation = catalog.operations.begin(operation_id, OperationKind.LOAD_ROWS, name, is_exclusive=True)
    with catalog.operations.attempt(operation.id, "load") as attempt:
        folder = attempt_folder(operation, attempt)
        scheme = catalog.get_table(name).scheme
        assert isinstance(scheme, RangeScheme)
        list_files(catalog, name, scheme, folder, values, rows)
        catalog.committer.commit(operation.id, "load", attempt, FileChange(scheme, scheme, folder), {})


def list_files(
    catalog: Catalog, name: str, scheme: RangeScheme, folder: str, values: Iterable[tuple[int, int]], rows: int
) -> None:
    """Write the manifest of a folder with a file for each pair of least and greatest values."""
    table = catalog.get_table(name)
    ids = range(1, len(table.columns) + 1)
    files = (_file(scheme, ids, f"{folder}/{number}.parquet", pair, rows) for number, pair in enumerate(values))
    write_manifest(table, folder, files)


def _file(scheme: RangeScheme, ids: range, path: str, values: tuple[int, int], rows: int) -> NewFile:
    # Imported late: a process that does not list files does not need PyIceberg.
    from catalog.iceberg.footers.facts import FileFacts
    from catalog.iceberg.manifests import encode_metrics

    counts = dict.fromkeys(ids, rows)
    lower, upper = ({number: struct.pack("<q", value) for number in ids} for value in values)
    facts = FileFacts(rows, dict.fromkeys(ids, _BYTES), counts, dict.fromkeys(ids, 0), {}, lower, upper, (4,), ())
    statistics = {scheme.column: ColumnStatistics.of_values(scheme.value_type, *values, 0)}
    return NewFile(scheme.partition_of(values[0]), path, rows, _BYTES, statistics, encode_metrics(facts))
