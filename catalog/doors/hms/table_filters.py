"""Filters of tables by their name, type, owner, last access and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from typing import Any

from hive_metastore.ttypes import MetaException

from catalog.doors.hms.filter_parser import Leaf, Tree, parse_filter
from catalog.doors.hms.filters import likes_of
from catalog.expressions.evaluation import COMPARE, like_pattern
from catalog.expressions.tree import LikePattern, Operator
from catalog.metastores.types import HiveTable
from catalog.model.identifiers import TableName

NAME, TYPE, OWNER = "hive_filter_field_tableName__", "hive_filter_field_tableType__", "hive_filter_field_owner__"
ACCESS, PARAMETER = "hive_filter_field_last_access__", "hive_filter_field_params__"
"""Names of the fields in filters; parameters have the name of a parameter after it. Source: `hive_metastore.thrift`."""

_OF_PARAMETERS = ("=", "<>", "LIKE")
_IGNORING_CASE = "(?i)"
"""How a pattern of LIKE begins that ignores case, as those of Hive's clients do since 4.1."""

Test = Callable[[HiveTable], bool]


def matching_tables(
    names: Iterable[TableName], read: Callable[[Iterable[TableName]], Iterable[HiveTable]], text: str
) -> Iterator[TableName]:
    """Yield the names of those tables that match a filter.

    Args:
        read: Returns the definitions of tables; not called for a condition about names only, by which Hive 4.1 lists
            tables.

    Raises:
        MetaException: The filter cannot be read, or asks for something else.
    """
    if not text.strip():
        return iter(names)
    tree = parse_filter(text)
    if isinstance(tree, Leaf) and tree.key == NAME:
        compare = _comparison(tree, str)
        return (name for name in names if compare(name.name))
    test = _test(tree)
    return (table.name for table in read(names) if test(table))


def _test(tree: Tree) -> Test:
    if isinstance(tree, Leaf):
        return _leaf(tree)
    tests = [_test(part) for part in tree.parts]
    join = all if tree.word == "and" else any
    return lambda table: join(test(table) for test in tests)


def _leaf(leaf: Leaf) -> Test:
    if leaf.key == NAME:
        compare = _comparison(leaf, str)
        return lambda table: compare(table.name.name)
    if leaf.key == TYPE:
        compare = _comparison(leaf, str)
        return lambda table: compare(table.table_type)
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
    raise MetaException(
        f"Invalid key name in filter: {leaf.key!r}; use {NAME}, {TYPE}, {OWNER}, {ACCESS} or {PARAMETER}<name>"
    )


def _comparison(leaf: Leaf, kind: type) -> Callable[[Any], bool]:
    value = leaf.value.isoformat() if isinstance(leaf.value, date) else kind(leaf.value)
    if leaf.operator == "LIKE":
        flags = re.IGNORECASE if value.startswith(_IGNORING_CASE) else re.NOFLAG
        likes = (like_pattern(LikePattern(text)) for text in likes_of(value.removeprefix(_IGNORING_CASE)))
        patterns = [re.compile(like.pattern, like.flags | flags) for like in likes]
        return lambda given: given is not None and any(pattern.fullmatch(given) for pattern in patterns)
    compare = COMPARE[Operator(leaf.operator)]
    return lambda given: given is not None and compare(given, value)
