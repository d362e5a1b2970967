"""What can be asked of a table's partitions: add, split, drop, merge, another number of hash partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from catalog.errors import InvalidRequestError
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Change, Scheme
from catalog.schemes.ranges import RangeScheme
from catalog.schemes.texts import format_group


@dataclass(frozen=True)
class PartitionChange(ABC):
    """One change of a table's partitions."""

    kind: ClassVar[str]

    @abstractmethod
    def of(self, scheme: Scheme) -> Change:
        """Return what becomes of a scheme.

        Raises:
            PartitionNotFoundError, InvalidSchemeError: The change does not fit the scheme; subclasses say why.
        """

    @abstractmethod
    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange | None:
        """Return the change that gives the scheme before it again, but for partition ids; None if rows are gone."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the change as a statement writes it behind ALTER TABLE and the table's name."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values; `change_from_json` reads them."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"change": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}}


@dataclass(frozen=True)
class AddPartitions(PartitionChange):
    """New ranges above the last one, or new groups of values; their rows come out of the default partition.

    Attributes:
        items: Upper bounds, or groups such as `(Mars, Venus)` and `Pluto`.
    """

    kind: ClassVar[str] = "add"

    items: tuple[str, ...]

    def of(self, scheme: Scheme) -> Change:
        """Return what becomes of a scheme."""
        return scheme.add(self.items)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Drop what was added; its rows go back."""
        return DropPartitions(tuple(each for each in after.ids if each not in before.ids))

    def __str__(self) -> str:
        """Return the statement."""
        return f"ADD PARTITION ({_quoted(self.items)})"


@dataclass(frozen=True)
class SplitPartition(PartitionChange):
    """One partition becomes several.

    Attributes:
        items: Upper bounds of the parts, the last one the partition's own; or groups, together its own.
    """

    kind: ClassVar[str] = "split"

    partition_id: int
    items: tuple[str, ...]

    def of(self, scheme: Scheme) -> Change:
        """Return what becomes of a scheme."""
        return scheme.split(self.partition_id, self.items)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Merge the parts."""
        return MergePartitions(tuple(each for each in after.ids if each not in before.ids))

    def __str__(self) -> str:
        """Return the statement."""
        return f"SPLIT PARTITION ({self.partition_id}) INTO ({_quoted(self.items)})"


@dataclass(frozen=True)
class DropPartitions(PartitionChange):
    """Partitions go; their rows go to the next range or to the default partition, unless they go, too."""

    kind: ClassVar[str] = "drop"

    partition_ids: tuple[int, ...]
    with_data: bool = False

    def of(self, scheme: Scheme) -> Change:
        """Return what becomes of a scheme."""
        return scheme.drop(self.partition_ids, with_data=self.with_data)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange | None:
        """Add or split again, if one partition was dropped without its rows."""
        if self.with_data or len(self.partition_ids) != 1:
            return None
        [dropped] = self.partition_ids
        if isinstance(before, ListScheme):
            return AddPartitions((_item(before, dropped),))
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
    """Several partitions become one."""

    kind: ClassVar[str] = "merge"

    partition_ids: tuple[int, ...]

    def of(self, scheme: Scheme) -> Change:
        """Return what becomes of a scheme."""
        return scheme.merge(self.partition_ids)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Split again."""
        [merged] = [each for each in after.ids if each not in before.ids]
        parts = [each for each in before.ids if each in self.partition_ids]
        return SplitPartition(merged, tuple(_item(before, each) for each in parts))

    def __str__(self) -> str:
        """Return the statement."""
        return f"MERGE PARTITION ({', '.join(map(str, self.partition_ids))})"


@dataclass(frozen=True)
class SetPartitionNumber(PartitionChange):
    """Another number of hash partitions."""

    kind: ClassVar[str] = "set_partition_num"

    count: int

    def of(self, scheme: Scheme) -> Change:
        """Return what becomes of a scheme."""
        return scheme.set_count(self.count)

    def reverse(self, before: Scheme, after: Scheme) -> PartitionChange:
        """Set the old number."""
        assert isinstance(before, HashScheme)
        return SetPartitionNumber(before.count)

    def __str__(self) -> str:
        """Return the statement."""
        return f"SET PARTITION_NUM {self.count}"


def _item(scheme: Scheme, partition_id: int) -> str:
    """Return a partition as ADD and SPLIT take it."""
    if isinstance(scheme, ListScheme):
        texts = dict(scheme.groups)[partition_id]
        return texts[0] if len(texts) == 1 and not texts[0].startswith("(") else _group(texts)
    assert isinstance(scheme, RangeScheme)
    return dict(scheme.bounds)[partition_id]


def _group(texts: Sequence[str]) -> str:
    text = format_group(texts)
    return text if len(texts) > 1 else f"({text})"


def _quoted(items: Sequence[str]) -> str:
    texts = [item.replace("\\", "\\\\").replace("'", "''") for item in items]
    return ", ".join(f"'{text}'" for text in texts)


_KINDS: Mapping[str, type[PartitionChange]] = {
    each.kind: each for each in (AddPartitions, SplitPartition, DropPartitions, MergePartitions, SetPartitionNumber)
}
CHANGES = tuple(_KINDS)
"""The kinds of changes, as requests name them."""


def change_from_json(stored: Mapping[str, Any]) -> PartitionChange:
    """Return the change that plain values describe, as `PartitionChange.as_json` writes them.

    Raises:
        InvalidRequestError: They describe none.
    """
    kind = _KINDS.get(str(stored.get("change")))
    if kind is None:
        raise InvalidRequestError(f"change is {stored.get('change')!r}; it is one of {', '.join(CHANGES)}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    values.pop("change")
    try:
        return kind(**values)
    except TypeError as error:
        names = ", ".join(each.name for each in fields(kind))
        raise InvalidRequestError(f"change {kind.kind} takes {names}: {error}") from None
