"""The order in which a client of Hive 4 asks for the names of partitions.

Source: `MetaStoreUtils.makeOrderSpecs` and `MetaStoreDirectSql.getPartitionNamesViaSql` of Hive 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hive_metastore.ttypes import MetaException

from catalog.doors.hms.filters import INTEGERS
from catalog.doors.hms.names import name_to_pairs
from catalog.model import Column
from catalog.model.partition_names import NULL_VALUE


def in_order(names: Sequence[str], order: str, keys: Sequence[Column]) -> list[str]:
    """Return names of partitions in an order; those that it does not tell apart stay as they are.

    Args:
        order: Places of keys, and a sign for each: `1,0:+-` is the second key ascending, then the first descending.
            Null is greater than all values, as in PostgreSQL.

    Raises:
        MetaException: The order cannot be read, or a table has no such key.
    """
    sorted_names = list(names)
    if order.count(":") != 1:
        # As Hive, which ignores it then.
        return sorted_names
    places, signs = order.split(":")
    try:
        columns = [range(len(keys))[int(place)] for place in places.split(",")]
    except (ValueError, IndexError):
        columns = []
    if len(columns) != len(signs):
        raise MetaException(f"order {order[:100]!r} cannot be read; write places of keys and their signs, as 0,1:+-")
    for place, sign in reversed(list(zip(columns, signs, strict=True))):
        rank = partial(_rank, place=place, is_whole=keys[place].type in INTEGERS)
        sorted_names.sort(key=rank, reverse=sign != "+")
    return sorted_names


def _rank(name: str, *, place: int, is_whole: bool) -> tuple[int, int, str]:
    value = name_to_pairs(name)[place][1]
    if value == NULL_VALUE:
        return 2, 0, ""
    try:
        return (0, int(value), "") if is_whole else (0, 0, value)
    except ValueError:
        return 1, 0, value
