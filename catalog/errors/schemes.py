"""Errors about partition schemes and their changes."""

from __future__ import annotations

from catalog.errors.base import InvalidRequestError


class InvalidSchemeError(InvalidRequestError):
    """A partition scheme, or a change to one, is invalid."""


class BoundsNotAscendingError(InvalidSchemeError):
    """Two neighbouring range bounds are not in ascending order.

    Attributes:
        lower, upper: The two bounds, as written.
    """

    def __init__(self, place: str, lower: str, upper: str) -> None:
        """Build the message; `place` names the clause, for instance `RANGE_INFO`."""
        self.lower = lower
        self.upper = upper
        super().__init__(
            f"{place}: bound {upper} follows {lower} and is not greater; write the bounds in ascending order"
        )


class BoundOutsideRangeError(InvalidSchemeError):
    """A bound is outside the range to split, or the last bound is not the range's own."""


class DuplicateListValueError(InvalidSchemeError):
    """The groups of a list name a value twice."""


class ListGroupMismatchError(InvalidSchemeError):
    """The new groups together do not equal the group to split."""


class SchemeValueError(InvalidSchemeError):
    """A bound, list value or interval is not of the partition column's type."""


class DefaultPartitionError(InvalidSchemeError):
    """The default partition (id 0) cannot be split, dropped or merged."""


class PartitionsNotNeighboursError(InvalidSchemeError):
    """Ranges to merge are not adjacent."""


class UnsupportedChangeError(InvalidSchemeError):
    """The table's partition scheme does not support this change."""
