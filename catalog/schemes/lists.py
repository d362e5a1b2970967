"""LIST: each partition holds the values of one group; all other values, and nulls, are in partition 0."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from catalog.errors import DuplicateListValueError, ListGroupMismatchError
from catalog.schemes.model import DEFAULT_PARTITION, LOWEST, Change, NumberedScheme, SchemeType
from catalog.schemes.texts import format_group, parse_group
from catalog.types.key_types import KeyValue
from catalog.types.ranges import Ranges

Group = tuple[int, tuple[str, ...]]
"""A partition's id and values."""


@dataclass(frozen=True)
class ListScheme(NumberedScheme):
    """Partitions by groups of values."""

    type: ClassVar[SchemeType] = SchemeType.LIST

    groups: tuple[Group, ...] = ()

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The default partition's id, then those of the groups in order."""
        return (DEFAULT_PARTITION, *(partition_id for partition_id, _ in self.groups))

    @cached_property
    def partition_of_bytes(self) -> dict[bytes, int]:
        """Encoded listed value → its partition, in ascending order of the bytes."""
        partitions = {self.encoded(text): partition_id for partition_id, texts in self.groups for text in texts}
        return dict(sorted(partitions.items()))

    @cached_property
    def _sorted_bytes(self) -> list[bytes]:
        return list(self.partition_of_bytes)

    def check(self, place: str) -> None:
        """Check that no value is listed twice; without groups, all rows are in the default partition.

        Raises:
            DuplicateListValueError: A value is listed twice.
            SchemeValueError: A value is not of the column's type.
            LimitExceededError: There are too many partitions.
        """
        self._refuse_duplicates((text for _, texts in self.groups for text in texts), place)
        self.check_size()

    def _refuse_duplicates(self, texts: Iterable[str], place: str) -> None:
        seen: dict[bytes, str] = {}
        for text in texts:
            encoded = self.encoded(text)
            if encoded in seen:
                other = "" if seen[encoded] == text else f" (as {seen[encoded]}, too)"
                raise DuplicateListValueError(
                    f"{place}: value {text} of {self.column} is named twice{other}; a value belongs to one partition"
                )
            seen[encoded] = text

    def text_of(self, partition_id: int) -> str:
        """Return the condition of a partition's rows; values are in quotes if they could be taken for several."""
        if partition_id == DEFAULT_PARTITION:
            return f"{self.column} = DEFAULT"
        return f"{self.column} = {', '.join(map(_shown, self._texts[partition_id]))}"

    @cached_property
    def _texts(self) -> dict[int, tuple[str, ...]]:
        return dict(self.groups)

    def partition_of(self, value: KeyValue | None) -> int:
        """Return the partition of a value."""
        if value is None:
            return DEFAULT_PARTITION
        return self.partition_of_bytes.get(self.value_type.encode(value), DEFAULT_PARTITION)

    def partitions_in(self, ranges: Ranges) -> set[int]:
        """Return the partitions with a value in the ranges; the default one too, unless only listed values are."""
        partitions: set[int] = set()
        for key_range in ranges:
            if key_range.is_point and key_range.low >= LOWEST:
                partitions.add(self.partition_of_bytes.get(key_range.low, DEFAULT_PARTITION))
                continue
            partitions.add(DEFAULT_PARTITION)
            first, end = bisect_left(self._sorted_bytes, key_range.low), bisect_left(self._sorted_bytes, key_range.high)
            partitions.update(self.partition_of_bytes[encoded] for encoded in self._sorted_bytes[first:end])
        return partitions

    def _rebuilt(self, groups: Sequence[Group], *, used: int) -> ListScheme:
        return replace(self, groups=tuple(groups), next_id=self.next_id + used).check_size()

    def _new_groups(self, items: Sequence[str], place: str) -> list[Group]:
        parsed = [parse_group(item, place) for item in items]
        return list(zip(self._new_ids(len(parsed)), parsed, strict=True))

    def add(self, items: Sequence[str]) -> Change:
        """Return the change that adds groups."""
        self._check_count("ADD PARTITION", len(items), 1)
        new = self._new_groups(items, "ADD PARTITION")
        texts = [text for _, group in new for text in group]
        self._refuse_duplicates(texts, "ADD PARTITION")
        for text in texts:
            known = self.partition_of_bytes.get(self.encoded(text))
            if known is not None:
                raise DuplicateListValueError(
                    f"ADD PARTITION: value {text} of {self.column} already belongs to partition {known} "
                    f"({self.text_of(known)}); a value belongs to one partition"
                )
        scheme = self._rebuilt([*self.groups, *new], used=len(new))
        return Change(scheme, {DEFAULT_PARTITION: (DEFAULT_PARTITION, *(partition_id for partition_id, _ in new))})

    def split(self, partition_id: int, items: Sequence[str]) -> Change:
        """Return the change that splits a group into several."""
        self._check_changeable([partition_id], "split")
        self._check_count("SPLIT PARTITION", len(items), 2)
        new = self._new_groups(items, "SPLIT PARTITION")
        texts = [text for _, group in new for text in group]
        self._refuse_duplicates(texts, "SPLIT PARTITION")
        self._check_same_values(partition_id, texts)
        position = self.ids.index(partition_id) - 1
        groups = [*self.groups[:position], *new, *self.groups[position + 1 :]]
        return Change(self._rebuilt(groups, used=len(new)), {partition_id: tuple(new_id for new_id, _ in new)})

    def _check_same_values(self, partition_id: int, texts: Sequence[str]) -> None:
        old = {self.encoded(text): text for text in self._texts[partition_id]}
        new = {self.encoded(text): text for text in texts}
        missing = [text for encoded, text in old.items() if encoded not in new]
        foreign = [text for encoded, text in new.items() if encoded not in old]
        if missing or foreign:
            raise ListGroupMismatchError(
                f"partition {partition_id} is {self.text_of(partition_id)}; its parts must list exactly these values: "
                f"missing {', '.join(missing) or 'none'}, foreign {', '.join(foreign) or 'none'}"
            )

    def drop(self, partition_ids: Sequence[int], *, with_data: bool) -> Change:
        """Return the change that removes groups; their values then belong to the default partition."""
        self._check_changeable(partition_ids, "dropped")
        dropped = set(partition_ids)
        scheme = self._rebuilt([group for group in self.groups if group[0] not in dropped], used=0)
        if with_data:
            return Change(scheme, {}, tuple(sorted(dropped)))
        return Change(scheme, dict.fromkeys(sorted(dropped), (DEFAULT_PARTITION,)))

    def merge(self, partition_ids: Sequence[int]) -> Change:
        """Return the change that merges groups, at the position of the first of them."""
        self._check_changeable(partition_ids, "merged; drop a group to add it to the default partition")
        self._check_count("MERGE PARTITION", len(partition_ids), 2)
        [new_id] = self._new_ids(1)
        replaced = set(partition_ids)
        first = min(self.ids.index(partition_id) for partition_id in partition_ids) - 1
        merged = tuple(text for partition_id, texts in self.groups if partition_id in replaced for text in texts)
        groups = [group for group in self.groups if group[0] not in replaced]
        groups.insert(first, (new_id, merged))
        return Change(self._rebuilt(groups, used=1), dict.fromkeys(sorted(replaced), (new_id,)))

    def properties(self) -> dict[str, str]:
        """Return the type and the groups."""
        return {"PARTITION_TYPE": "LIST", "LIST_INFO": ", ".join(format_group(texts) for _, texts in self.groups)}

    def _fields(self) -> dict[str, Any]:
        return {"next_id": self.next_id, "groups": [[partition_id, list(texts)] for partition_id, texts in self.groups]}


def _shown(text: str) -> str:
    is_plain = "," not in text and "'" not in text and text.strip() == text != ""
    return text if is_plain else "'" + text.replace("'", "''") + "'"
