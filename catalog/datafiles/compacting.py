"""Choice of the small files of tables with a partition scheme that a compaction writes to fewer and larger ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from catalog.datafiles.files import DataFile
from catalog.schemes.model import UNPLACED

_SMALL = 0.75
"""The ratio to the target size below which a file is small."""


def files_to_compact(
    files: Iterable[DataFile], target_bytes: int, partition_ids: Collection[int] | None = None
) -> list[DataFile]:
    """Return the small files of those partitions that would have fewer files; unplaced files are left to `place`.

    Args:
        target_bytes: The target size of data files.
        partition_ids: The partitions to look at; None for all.
    """
    small: dict[int, list[DataFile]] = {}
    for file in files:
        is_chosen = partition_ids is None or file.partition_id in partition_ids
        if is_chosen and file.partition_id != UNPLACED and file.size_bytes < _SMALL * target_bytes:
            small.setdefault(file.partition_id, []).append(file)
    return [
        file
        for own in small.values()
        if len(own) > max(1, -(-sum(file.size_bytes for file in own) // target_bytes))
        for file in own
    ]
