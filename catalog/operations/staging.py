"""Layout of staging folders, which a load writes below its table's location and readers skip.

    _calve_staging/<attempt>/data/k=v/…    data files, in one folder per partition, with unique names
    _calve_staging/<attempt>/files         their list: one row per partition (`StagedPartition`)
    _calve_staging/<attempt>/begun         marks an attempt, and has the layout of its data files (`require_layout`)
    _calve_rejected/<operation>/k=v/…      the files of partitions that a load skipped
    _calve_versions/<attempt>/k=v/…        files that replace those of a partition (`catalog.partitions.versions`)

The files of a table without partition keys are in `data` itself. On an object store, those of a table with partition
keys are written to `_calve_versions`, where readers find them after the commit: a store may finish to copy a file after
the process that asked for it has died, so what an undone load has moved could come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog.errors import PlanConflictError, VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.files.locations import is_local
from catalog.model import Table
from catalog.model.partition_names import pack_values, partition_path
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import Operation

STAGING = "_calve_staging"
REJECTED = "_calve_rejected"
VERSIONS = "_calve_versions"
STAGED_DATA = "data"
_BEGUN = "begun"
STAGED_FILES = "files"
_COMPLETE = f"{STAGED_FILES}/_SUCCESS"

STAGED_SCHEMA = pa.schema(
    [
        ("values", pa.list_(pa.string())),
        ("files", pa.list_(pa.string())),
        ("row_count", pa.int64()),
        ("size_bytes", pa.int64()),
    ]
)
"""The columns of the list of staged files."""


@dataclass(frozen=True)
class StagedPartition:
    """The staged files of one partition.

    Attributes:
        values: Empty for a table without partition keys.
        files: Names of its files, which are unique.
    """

    values: tuple[str | None, ...]
    files: tuple[str, ...]
    row_count: int
    size_bytes: int

    @property
    def file_count(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def packed_values(self, key_names: Sequence[str]) -> str:
        """Return its values as one string (`catalog.model.partition_names.pack_values`)."""
        return pack_values(self.values, len(key_names))

    def data_path(self, table: Table, staging: str) -> str:
        """Return the folder of its files, relative to the table's location."""
        parts = data_folder(table, staging), partition_path(table.key_names, self.values)
        return "/".join(part for part in parts if part)


def is_written_in_place(table: Table) -> bool:
    """Return whether data files are written to the versions that they become, instead of being moved there."""
    return bool(table.partition_keys) and not is_local(table.location)


def data_folder(table: Table, staging: str) -> str:
    """Return the folder of an attempt's data files, relative to the table's location."""
    if is_written_in_place(table):
        return f"{VERSIONS}/{staging.removeprefix(f'{STAGING}/')}"
    return f"{staging}/{STAGED_DATA}"


def begin_staging(table: Table, staging: str) -> str:
    """Make an attempt known, and return the folder of its data files, relative to the table's location.

    Args:
        staging: The attempt's staging folder, relative to the table's location.
    """
    Folder(table.location).write_bytes(f"{staging}/{_BEGUN}", json.dumps(_layout(table)).encode())
    return data_folder(table, staging)


def _layout(table: Table) -> dict[str, Any]:
    """Return how readers find the values in the files of a table: the format, and the id and name of each column."""
    columns = [[column.id, column.stored_name] for column in (*table.columns, *table.dropped_columns)]
    return {"format": table.format, "columns": columns}


def written_layout(folder: Folder, staging: str) -> Mapping[str, Any] | None:
    """Return the layout of an attempt's data files; None if an earlier version has begun the attempt."""
    if not folder.exists(f"{staging}/{_BEGUN}"):
        return None
    with folder.open_text(f"{staging}/{_BEGUN}") as text:
        layout: Mapping[str, Any] | None = json.loads(text.read() or "null")
    return layout


def require_layout(table: Table, written: Mapping[str, Any] | None) -> None:
    """Check that readers of a table find the values in data files that an attempt has written.

    Other programs may change the format of a table while an attempt writes. Columns may be added, but the columns of a
    table without partitions may lose their names in files, or their positions.

    Args:
        table: Locked by the caller's transaction.
        written: As `written_layout` returns it.

    Raises:
        PlanConflictError: The format is another one, or a column has another name in files.
    """
    if written is None:
        return
    changed = None
    if written["format"] != table.format:
        changed = f"format became {table.format.upper()}, while rows were written as {written['format'].upper()}"
    every = {(column.id, name) for column in (*table.columns, *table.dropped_columns) for name in column.stored_names}
    if missing := [name for number, name in written["columns"] if (number, name) not in every]:
        changed = f"column {missing[0]} was changed while rows were written with it"
    if changed:
        raise PlanConflictError(
            f"table {table.full_name}: the {changed}; nothing was changed. Run the statement or the load again from "
            "its start"
        )


def delete_staging(table: Table, staging: str) -> None:
    """Delete the staging folder of an attempt, after its data files were moved, committed in place, or deleted."""
    folder = Folder(table.location)
    if is_written_in_place(table):
        data = folder.inside(data_folder(table, staging))
        # Spark marks what it has written as complete.
        data.delete_files(["_SUCCESS"])
        if data.delete_if_empty():
            folder.inside(VERSIONS).delete_if_empty()
    folder.delete(f"{staging}/{STAGED_FILES}")
    folder.delete(staging)


def staging_name(operation: Operation, attempt: int) -> str:
    """Return the staging folder of an attempt, relative to the table's location."""
    return f"{STAGING}/{attempt_folder(operation, attempt)}"


def is_complete(folder: Folder, staging: str) -> bool:
    """Return whether an attempt's staged files and their list are complete."""
    return folder.exists(f"{staging}/{_COMPLETE}")


def incomplete(folder: Folder, staging: str, table: str) -> VerificationFailedError:
    """Return the error for an incomplete staging folder."""
    return VerificationFailedError(
        f"table {table}: {folder.location}/{staging} has no complete list of the written files; nothing was added. Run "
        "the load again from its start"
    )


def read_staged(folder: Folder, staging: str) -> Iterator[StagedPartition]:
    """Yield the staged partitions; nothing when the list is incomplete."""
    if is_complete(folder, staging):
        for row in folder.rows(f"{staging}/{STAGED_FILES}"):
            yield StagedPartition(tuple(row["values"]), tuple(row["files"]), row["row_count"], row["size_bytes"])
