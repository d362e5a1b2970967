"""Changes of ranges and of lists of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from catalog.errors import WrongFieldError
from catalog.rebalancing.changes.base import Form, PartitionChange, item_of, quoted
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Change, Scheme
from catalog.schemes.ranges import RangeScheme


@dataclass(frozen=True)
class AddPartitions(PartitionChange):
    """Addition of ranges above the last one, or of groups of values, whose rows leave the default partition.

    Attributes:
        items: Upper bounds, or groups such as `(Mars, Venus)` and `Pluto`.
    """

    kind = "add"
    form_fields = ("items",)

    items: tuple[str, ...]

    def of(self, scheme: Scheme) -> Change:
        """Return the scheme after the change."""
        return scheme.add(self.items)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Return the change that drops the new partitions, whose rows return to the default partition."""
        return DropPartitions(tuple(partition_id for partition_id in after.ids if partition_id not in before.ids))

    def __str__(self) -> str:
        """Return the statement."""
        return f"ADD PARTITION ({quoted(self.items)})"


@dataclass(frozen=True)
class SplitPartition(PartitionChange):
    """Split of one partition into several.

    Attributes:
        items: Upper bounds of the parts, the last of which is the partition's bound; or groups, which together have all
            its values.
    """

    kind = "split"
    form_fields = ("partition_ids", "items")

    partition_id: int
    items: tuple[str, ...]

    @classmethod
    def from_form(cls, form: Form) -> Self:
        """Return the change that a form describes."""
        ids = form["partition_ids"]
        if len(ids) != 1:
            raise WrongFieldError("partition_ids", f"is {list(ids)}; split takes exactly one partition")
        return cls(ids[0], form["items"])

    def as_form(self) -> dict[str, Any]:
        """Return the fields of the form that describes the change."""
        return {"partition_ids": [self.partition_id], "items": list(self.items)}

    def of(self, scheme: Scheme) -> Change:
        """Return the scheme after the change."""
        return scheme.split(self.partition_id, self.items)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Return the change that merges the parts."""
        return MergePartitions(tuple(partition_id for partition_id in after.ids if partition_id not in before.ids))

    def __str__(self) -> str:
        """Return the statement."""
        return f"SPLIT PARTITION ({self.partition_id}) INTO ({quoted(self.items)})"


@dataclass(frozen=True)
class DropPartitions(PartitionChange):
    """Removal of partitions, whose rows move to the next range or to the default partition, or are deleted."""

    kind = "drop"
    form_fields = ("partition_ids", "with_data")

    partition_ids: tuple[int, ...]
    with_data: bool = False

    def of(self, scheme: Scheme) -> Change:
        """Return the scheme after the change."""
        return scheme.drop(self.partition_ids, with_data=self.with_data)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange | None:
        """Return the change that adds or splits off the partition again; None if several or rows were dropped."""
        if self.with_data or len(self.partition_ids) != 1:
            return None
        [dropped] = self.partition_ids
        if isinstance(before, ListScheme):
            return AddPartitions((item_of(before, dropped),))
        assert isinstance(before, RangeScheme)
        position = before.ids.index(dropped)
        bound = dict(before.bounds)[dropped]
        if position == len(before.bounds):
            return AddPartitions((bound,))
        following = before.bounds[position]
        return SplitPartition(following[0], (bound, following[1]))

    def __str__(self) -> str:
        """Return the statement."""
        return f"DROP PARTITION ({', '.join(map(str, self.partition_ids))}){' WITH DATA' * self.with_data}"


@dataclass(frozen=True)
class MergePartitions(PartitionChange):
    """Merge of several partitions into one."""

    kind = "merge"
    form_fields = ("partition_ids",)

    partition_ids: tuple[int, ...]

    def of(self, scheme: Scheme) -> Change:
        """Return the scheme after the change."""
        return scheme.merge(self.partition_ids)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Return the change that splits the merged partition."""
        [merged] = [partition_id for partition_id in after.ids if partition_id not in before.ids]
        parts = [partition_id for partition_id in before.ids if partition_id in self.partition_ids]
        return SplitPartition(merged, tuple(item_of(before, part) for part in parts))

    def __str__(self) -> str:
        """Return the statement."""
        return f"MERGE PARTITION ({', '.join(map(str, self.partition_ids))})"
