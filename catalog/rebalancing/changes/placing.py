"""Placement of the files that other engines wrote."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.rebalancing.changes.base import PartitionChange
from catalog.schemes.model import UNPLACED, Change, Scheme


@dataclass(frozen=True)
class PlaceFiles(PartitionChange):
    """Assignment of unplaced files to their partitions, by rewriting those whose rows belong to several.

    Files with rows that are deleted in delete files are rewritten without these rows.
    """

    kind = "place"
    form_fields = ()
    applies_deletes = True

    def of(self, scheme: Scheme) -> Change:
        """Return the scheme, which stays, and the partitions that rows of unplaced files may belong to."""
        return Change(scheme, {UNPLACED: scheme.ids})

    def reverse(self, before: Scheme, after: Scheme) -> None:
        """Return None: rows stay in their partitions."""

    def statement(self, table: str) -> str:
        """Return the statement that makes the change."""
        return f"CALL calve.system.place('{table}')"

    def __str__(self) -> str:
        """Return a phrase for messages."""
        return "the placement of the files of other engines"
