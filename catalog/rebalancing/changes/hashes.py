"""Changes of hash partitions."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.rebalancing.changes.base import PartitionChange
from catalog.schemes.hashing import HashScheme
from catalog.schemes.model import Change, Scheme


@dataclass(frozen=True)
class SetPartitionCount(PartitionChange):
    """Change of the number of hash partitions."""

    kind = "set_partition_num"
    form_fields = ("count",)

    count: int

    def of(self, scheme: Scheme) -> Change:
        """Return the scheme after the change."""
        return scheme.set_count(self.count)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Return the change that restores the earlier number."""
        assert isinstance(before, HashScheme)
        return SetPartitionCount(before.count)

    def __str__(self) -> str:
        """Return the statement."""
        return f"SET PARTITION_NUM {self.count}"
