"""Layout of staging folders, which a load writes below its table's location and readers skip.

    _calve_staging/<attempt>/data/k=v/…    data files, in one folder per partition, with unique names
    _calve_staging/<attempt>/files         their list: one row per partition (`StagedPartition`)
    _calve_rejected/<operation>/k=v/…      the files of partitions that a load skipped
    _calve_versions/<attempt>/k=v/…        files that replace those of a partition (`catalog.partitions.versions`)

The files of a table without partition keys are in `data` itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from catalog.errors import VerificationFailedError
from catalog.files.filesystem import Folder
from catalog.model.partition_names import pack_values, partition_path
from catalog.operations.attempts import attempt_folder
from catalog.operations.records import Operation

STAGING = "_calve_staging"
REJECTED = "_calve_rejected"
VERSIONS = "_calve_versions"
STAGED_DATA = "data"
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

    def data_path(self, key_names: Sequence[str]) -> str:
        """Return the folder of its files, relative to the staging folder."""
        return "/".join(part for part in (STAGED_DATA, partition_path(key_names, self.values)) if part)


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
