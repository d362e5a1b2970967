"""Folders for the files of an Iceberg table, below its location.

By default these are Iceberg's standard folders. But readers of a Hive table without partition keys read everything in
the table's folder: Hive's readers fail at a subfolder or read its contents, even though the table may not be an Iceberg
table yet, or no longer. So Iceberg's files of such a table are in a hidden folder, which all readers skip.
"""

from __future__ import annotations

METADATA = "metadata"
"""Iceberg's standard metadata folder."""

HIDDEN = "_iceberg"
"""The folder of all Iceberg files, where Hive's readers would read the standard folders."""

HIDDEN_METADATA = f"{HIDDEN}/{METADATA}"


def metadata_folder(*, is_partitioned: bool) -> str:
    """Return the metadata folder, relative to a table's location."""
    return METADATA if is_partitioned else HIDDEN_METADATA


def path_properties(location: str, *, is_partitioned: bool) -> dict[str, str]:
    """Return the table properties that tell engines where to write metadata and data.

    Source: `write.metadata.path` and `write.data.path` of Apache Iceberg's table properties.
    """
    if is_partitioned:
        return {}
    return {"write.metadata.path": f"{location}/{HIDDEN_METADATA}", "write.data.path": f"{location}/{HIDDEN}/data"}
