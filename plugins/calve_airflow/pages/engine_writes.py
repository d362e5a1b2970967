"""The notices of pages about tables to which other engines write."""

from __future__ import annotations

from catalog.model import Table


def unseen_writes(table: Table, delete_files: int) -> str | None:
    """Return what the partitions, files and counts of a table leave out; None if nothing.

    Args:
        delete_files: The number of delete files in its current snapshot.
    """
    if table.live_location != table.published_location:
        return (
            "Another engine has made a commit that Calve has not taken in. Partitions, files and counts are those "
            "before it; readers see the rows after it."
        )
    if delete_files:
        files = "1 delete file" if delete_files == 1 else f"{delete_files:,} delete files"
        return f"Row counts include the rows that are deleted in {files}; readers do not see these rows."
    return None
