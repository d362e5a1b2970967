"""Errors about partition schemes and their changes."""

from __future__ import annotations

from catalog.errors.base import InvalidRequestError


class InvalidSchemeError(InvalidRequestError):
    """A partition scheme, or a change of one, contradicts itself."""


class BoundsNotAscendingError(InvalidSchemeError):
    """Two neighbouring bounds of ranges do not ascend.

    Attributes:
        lower, upper: The pair, as written.
    """

    def __init__(self, place: str, lower: str, upper: str) -> None:
        """Name the pair; `place` says where it stands, for instance `RANGE_INFO`."""
        self.lower = lower
        self.upper = upper
        super().__init__(
            f"{place}: bound {upper} follows {lower} and is not greater; write the bounds in ascending order"
        )


class BoundOutsideRangeError(InvalidSchemeError):
    """A bound does not lie inside the range that is split, or not at its end where it has to."""


class DuplicateListValueError(InvalidSchemeError):
    """A value is named twice in the groups of a list."""


class ListGroupMismatchError(InvalidSchemeError):
    """The groups that a group is split into are not together exactly the old one."""


class SchemeValueError(InvalidSchemeError):
    """A bound, a list value or an interval is not of the partition column's type."""


class DefaultPartitionError(InvalidSchemeError):
    """Partition 0 takes what no other partition takes; it can be neither split, dropped nor merged."""


class PartitionsNotNeighboursError(InvalidSchemeError):
    """Ranges that are not side by side cannot become one."""


class UnsupportedChangeError(InvalidSchemeError):
    """A table's partition scheme does not know this change."""
