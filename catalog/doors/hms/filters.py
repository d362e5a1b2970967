"""Filters of partitions in Hive Metastore's language, as expressions of Calve, so that the indexes answer them.

A metastore compares the strings of values. For string keys, the value `__HIVE_DEFAULT_PARTITION__` is one of them;
Calve keeps it as null, so that a condition which that string meets also asks for null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime

from hive_metastore.ttypes import MetaException

from catalog.doors.hms.filter_parser import TIMESTAMP, Leaf, Tree, Value, parse_filter
from catalog.expressions.evaluation import COMPARE, like_pattern
from catalog.expressions.tree import LikePattern, Operator
from catalog.model import Column
from catalog.model.partition_names import NULL_VALUE

INTEGERS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
"""Types of integers → the first number that is too large for them."""

_PIECES = re.compile(r"\\.|\.\*|.", re.DOTALL), re.compile(r"\.\*|.", re.DOTALL)
"""Parts of a pattern in which backslashes escape, and in which they do not."""

_WILD = {".*": "%", ".": "_"}
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_MICROSECONDS = len("2024-01-01 00:00:00.000000")
_TEXT_TYPE = re.compile(r"string|(var)?char\b.*")


def to_expression(text: str | None, keys: Sequence[Column], *, is_of_release_4: bool = False) -> str | None:
    """Return a client's filter as an expression of Calve; None if it matches all partitions.

    Args:
        is_of_release_4: LIKE has SQL's patterns, as in Hive 4.

    Raises:
        MetaException: It cannot be read, names a column that is no partition key, or compares a key with a literal of
            another type; keys are strings, dates, timestamps or integers.
    """
    if not text or not text.strip():
        return None
    as_patterns = _of_release_4 if is_of_release_4 else likes_of
    return _written(parse_filter(text), {key.name.lower(): key.type for key in keys}, as_patterns)


def _written(tree: Tree, types: Mapping[str, str], as_patterns: Callable[[str], Sequence[str]]) -> str:
    if isinstance(tree, Leaf):
        return _leaf(tree, types, as_patterns)
    return "(" + f" {tree.word} ".join(_written(part, types, as_patterns) for part in tree.parts) + ")"


def _leaf(leaf: Leaf, types: Mapping[str, str], as_patterns: Callable[[str], Sequence[str]]) -> str:
    name = leaf.key.lower()
    if name not in types:
        raise MetaException(f"Specified key <{leaf.key}> is not a partitioning key for the table")
    key, key_type = f"`{name}`", types[name]
    is_text = _TEXT_TYPE.fullmatch(key_type) is not None
    if leaf.operator == "LIKE" and (not is_text or not isinstance(leaf.value, str)):
        raise MetaException(f"LIKE needs a key of type string and a quoted pattern; {name} is of type {key_type}")
    if is_text:
        return _of_string(key, leaf, as_patterns)
    if key_type in INTEGERS and isinstance(leaf.value, int):
        return _of_integer(key, leaf.operator, leaf.value, INTEGERS[key_type])
    if key_type == "date" and (day := _as_date(leaf.value)):
        return f"{key} {leaf.operator} '{day}'"
    if key_type == "timestamp" and (moment := _as_timestamp(leaf.value)):
        return f"{key} {leaf.operator} '{moment}'"
    raise MetaException(
        f"key {name} is of type {key_type} and cannot be compared with {leaf.value!r}; filters compare string keys "
        "with strings, date keys with dates, timestamp keys with timestamps and integer keys with whole numbers"
    )


def _of_integer(key: str, comparison: str, number: int, limit: int) -> str:
    if -limit <= number < limit:
        return f"{key} {comparison} {number}"
    # All values of the key are on the same side of the number.
    return (
        f"{key} is not null" if COMPARE[Operator(comparison)](0, number) else f"({key} is null and {key} is not null)"
    )


def _of_string(key: str, leaf: Leaf, as_patterns: Callable[[str], Sequence[str]]) -> str:
    if isinstance(leaf.value, int):
        raise MetaException(f"key {key} is of type string and is compared with the number {leaf.value}; quote it")
    text = str(leaf.value)
    if leaf.operator == "LIKE":
        patterns = as_patterns(text)
        condition = " or ".join(f"{key} like {_quoted(pattern)}" for pattern in patterns)
        condition = condition if len(patterns) == 1 else f"({condition})"
        meets = any(like_pattern(LikePattern(pattern)).fullmatch(NULL_VALUE) for pattern in patterns)
    elif text == NULL_VALUE and leaf.operator in ("=", "<>"):
        return f"{key} is {'' if leaf.operator == '=' else 'not '}null"
    else:
        condition = f"{key} {leaf.operator} {_quoted(text)}"
        meets = COMPARE[Operator(leaf.operator)](NULL_VALUE, text)
    return f"({condition} or {key} is null)" if meets else condition


def _as_date(value: Value) -> str | None:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and _DATE.fullmatch(value):
        year, month, day = map(int, value.split("-"))
        try:
            return date(year, month, day).isoformat()
        except ValueError:
            return None
    return None


def _as_timestamp(value: Value) -> str | None:
    if isinstance(value, date):
        return f"{value.isoformat()} 00:00:00"
    if not isinstance(value, str) or not TIMESTAMP.fullmatch(value):
        return None
    try:
        moment = datetime.fromisoformat(value).isoformat(" ")
    except ValueError:
        return None
    # Python ignores what is less than a microsecond, but Calve's filters do not.
    return value if len(value) > _MICROSECONDS else moment


def likes_of(pattern: str) -> Sequence[str]:
    """Return SQL patterns for a pattern of Hive Metastore; values that match one of them are to be found.

    `.*` is any characters, and `.` one. A backslash escapes in Hive Metastore, but Spark does not escape,
    and filters what it receives again: a pattern with backslashes is read both ways.
    """
    return list(dict.fromkeys(piece.sub(_as_like, pattern) for piece in _PIECES))


def _of_release_4(pattern: str) -> Sequence[str]:
    return [pattern]


def _as_like(match: re.Match[str]) -> str:
    piece = match.group()
    if piece in _WILD:
        return _WILD[piece]
    character = piece[-1]
    return f"\\{character}" if character in "%_\\" else character


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def of_partial_values(values: Sequence[str], keys: Sequence[Column]) -> str | None:
    """Return the expression for partitions with these values of the first keys; an empty value is any.

    Raises:
        MetaException: There are more values than keys, or none.
    """
    if len(values) > len(keys) or not values:
        raise MetaException(
            f"Incorrect number of partition values. numPartKeys={len(keys)}, part_val={list(values)[:20]}"
        )
    conditions = [
        f"`{key.name}` is null" if value == NULL_VALUE else f"`{key.name}` = {_quoted(value)}"
        for key, value in zip(keys, values, strict=False)
        if value
    ]
    return " and ".join(conditions) or None
