"""Where the files of an Iceberg table go, below its location.

Usually into folders of Iceberg's own names. Of a Hive table without partition keys, however, every reader looks at all
that is in the table's folder: Hive's readers fail over a folder there or read what is in it, though the table may not
be an Iceberg table yet, or not any more. So what Iceberg writes into such a table goes into a hidden folder, which they
all pass over.
"""

from __future__ import annotations

from catalog.files.filesystem import Folder
from catalog.model import Table

METADATA = "metadata"
"""The folder of metadata, by Iceberg's own name."""

HIDDEN = "_iceberg"
"""The folder of all that Iceberg writes, where the usual ones would be read as Hive's."""

HIDDEN_METADATA = f"{HIDDEN}/{METADATA}"


def metadata_folder(*, is_partitioned: bool) -> str:
    """Return the folder of metadata, below a table's location."""
    return METADATA if is_partitioned else HIDDEN_METADATA


def hidden_location(table: Table) -> str | None:
    """Return the hidden folder of all that Iceberg writes into a table, as a location; None when it has none."""
    return f"{table.location}/{HIDDEN}" if Folder(table.location).exists(HIDDEN) else None


def path_properties(location: str, *, is_partitioned: bool) -> dict[str, str]:
    """Return the table properties by which engines write metadata and data where they belong.

    Source: `write.metadata.path` and `write.data.path` of Apache Iceberg's table properties.
    """
    if is_partitioned:
        return {}
    return {"write.metadata.path": f"{location}/{HIDDEN_METADATA}", "write.data.path": f"{location}/{HIDDEN}/data"}
