"""Filters of tables by their owner, last access and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import Any

from hive_metastore.ttypes import MetaException

from catalog.doors.hms.filter_parser import Leaf, Tree, parse_filter
from catalog.doors.hms.filters import like_of
from catalog.expressions.evaluation import COMPARE, like_pattern
from catalog.expressions.tree import LikePattern, Operator
from catalog.metastores.types import HiveTable

OWNER, ACCESS, PARAMETER = "hive_filter_field_owner__", "hive_filter_field_last_access__", "hive_filter_field_params__"
"""Names of the fields in filters. Source: `hive_metastore.thrift`."""

_OF_PARAMETERS = ("=", "<>", "LIKE")

Test = Callable[[HiveTable], bool]


def matching_tables(tables: Iterable[HiveTable], text: str) -> Iterator[HiveTable]:
    """Yield the tables that match a filter.

    Raises:
        MetaException: It cannot be read, or asks for something else.
    """
    test = _test(parse_filter(text)) if text.strip() else None
    return (table for table in tables if test is None or test(table))


def _test(tree: Tree) -> Test:
    if isinstance(tree, Leaf):
        return _leaf(tree)
    tests = [_test(part) for part in tree.parts]
    join = all if tree.word == "and" else any
    return lambda table: join(test(table) for test in tests)


def _leaf(leaf: Leaf) -> Test:
    if leaf.key == OWNER:
        compare = _comparison(leaf, str)
        return lambda table: compare(table.owner)
    if leaf.key == ACCESS:
        if leaf.operator == "LIKE" or not isinstance(leaf.value, int):
            raise MetaException("the last access is compared with a whole number of seconds")
        compare = _comparison(leaf, int)
        return lambda table: compare(table.accessed_at)
    if leaf.key.startswith(PARAMETER):
        if leaf.operator not in _OF_PARAMETERS:
            raise MetaException(
                f"parameters of tables are compared by {', '.join(_OF_PARAMETERS)}, not {leaf.operator}"
            )
        name, compare = leaf.key.removeprefix(PARAMETER), _comparison(leaf, str)
        return lambda table: compare(table.parameters.get(name))
    raise MetaException(f"tables cannot be filtered by {leaf.key!r}; use {OWNER}, {ACCESS} or {PARAMETER}<name>")


def _comparison(leaf: Leaf, kind: type) -> Callable[[Any], bool]:
    value = leaf.value.isoformat() if isinstance(leaf.value, date) else kind(leaf.value)
    if leaf.operator == "LIKE":
        pattern = like_pattern(LikePattern(like_of(value)))
        return lambda given: given is not None and pattern.fullmatch(given) is not None
    compare = COMPARE[Operator(leaf.operator)]
    return lambda given: given is not None and compare(given, value)
