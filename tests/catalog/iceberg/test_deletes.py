"""Data files that a delete file of an engine concerns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

from catalog.iceberg.deletes import DeleteFile

_FILE_PATH_ID = 2147483546
"""Source: "Reserved Field IDs" of Iceberg's specification."""
_SEQUENCE = 5


def delete_file(content: DataFileContent, names: Sequence[str] = ()) -> DeleteFile:
    """Return a delete file of the fifth commit, with the least and the greatest of the paths that it names."""
    low, high = ({_FILE_PATH_ID: bound(names).encode()} if names else None for bound in (min, max))
    file = DataFile.from_args(
        content=content,
        file_path="/t/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        lower_bounds=low,
        upper_bounds=high,
    )
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=_SEQUENCE, data_file=file
    )
    return DeleteFile.of(entry)


@pytest.mark.parametrize(
    ("content", "latest"), [(DataFileContent.EQUALITY_DELETES, 4), (DataFileContent.POSITION_DELETES, 5)]
)
def test_deletes_apply_to_files_of_earlier_commits_and_positions_to_those_of_their_own(
    content: DataFileContent, latest: int
) -> None:
    """Source: "Scan Planning" of Iceberg's specification."""
    deletes = delete_file(content)
    assert [number for number in range(8) if deletes.applies_to("/t/a.parquet", number)] == list(range(latest + 1))


def test_positions_apply_only_to_files_between_the_least_and_the_greatest_path() -> None:
    deletes = delete_file(DataFileContent.POSITION_DELETES, ["/t/b", "/t/d"])
    assert [name for name in "abcde" if deletes.applies_to(f"/t/{name}", _SEQUENCE)] == ["b", "c", "d"]


def test_paths_are_no_matter_to_equality_deletes() -> None:
    assert delete_file(DataFileContent.EQUALITY_DELETES, ["/t/b"]).applies_to("/t/z", _SEQUENCE - 1)
