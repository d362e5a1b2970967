"""Loads: their modes, and the files that they set aside."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from catalog.model.tables import Table


class LoadMode(StrEnum):
    """The effect of a load on the partitions of a table.

    It adds new ones (NEW), adds rows to existing ones, too (APPEND), replaces these (REPLACE), or merges its rows into
    these by keys (MERGE).
    """

    NEW = "new"
    APPEND = "append"
    REPLACE = "replace"
    MERGE = "merge"

    @classmethod
    def of(cls, text: str, table: Table) -> LoadMode:
        """Return a mode by its name; without a name, the default of the table, which depends on its format.

        Raises:
            ValueError: There is no mode of this name.
        """
        return cls(text or (cls.APPEND if table.has_file_rows else cls.NEW))


@dataclass(frozen=True, slots=True)
class SetAsideFile:
    """A source file that a load has set aside, because it cannot be loaded.

    Attributes:
        size_bytes, modified_at_ms: Of the file when it was read; it is tried again when they differ.
        reason: What is wrong with it, with one row as an example.
        bad_row_count: Number of its rows that cannot be loaded; None if it cannot be read at all.
        operation_id: The load; None if the journal no longer has it.
        set_aside_at_ms, table: When, and for which table; None until the catalog has recorded it.
    """

    path: str
    size_bytes: int
    modified_at_ms: int
    reason: str
    bad_row_count: int | None = None
    operation_id: str | None = None
    set_aside_at_ms: int | None = None
    table: str | None = None
