"""Names of the protocol: databases with their catalog, names of partitions, and patterns of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hive_metastore.ttypes import InvalidObjectException, MetaException

from catalog.expressions.evaluation import like_pattern
from catalog.expressions.tree import LikePattern
from catalog.model.partition_names import NULL_VALUE, escape, unescape

CATALOG = "hive"
"""The one catalog that all databases are in."""

VALID_NAME = re.compile(r"[\w-]+", re.ASCII)
"""Names that new databases and tables may have: those of Hive 3, and dashes, which are allowed since release 4."""

_EMPTY_DATABASE = "!"


class DatabaseName(NamedTuple):
    """A database as clients name it; None if they name none."""

    catalog: str
    database: str | None


def parse_database(text: str | None) -> DatabaseName:
    """Parse `database` of old clients, and `@catalog#database` of clients since 3.0.

    Raises:
        MetaException: There is a catalog, but no `#`.
    """
    if text is None or not text.startswith("@"):
        return DatabaseName(CATALOG, text)
    catalog, mark, database = text[1:].partition("#")
    if not mark:
        raise MetaException(f"database {text!r} starts with @ and has no #; write it as @catalog#database")
    if database == _EMPTY_DATABASE:
        return DatabaseName(catalog, "")
    return DatabaseName(catalog, database or None)


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """Return `key=value/key=value` as Hive writes it in paths."""
    return "/".join(f"{escape(key)}={escape(value) or NULL_VALUE}" for key, value in zip(keys, values, strict=True))


def name_to_pairs(name: str | None) -> list[tuple[str, str]]:
    """Return the keys and values in a partition's name; parts without `=` are skipped, as by Hive.

    Raises:
        MetaException: The name is missing or empty.
    """
    if not name:
        raise MetaException("the name of the partition is missing; write it as key=value/key=value")
    pairs = []
    for part in name.split("/"):
        key, mark, value = part.partition("=")
        if mark and key and value:
            pairs.append((unescape(key), unescape(value)))
    return pairs


def name_to_values(name: str | None, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the values in a partition's name in the order of the keys; other keys are skipped, as by Hive.

    Raises:
        MetaException: The name is missing or empty.
        InvalidObjectException: A key is missing.
    """
    pairs = dict(name_to_pairs(name))
    for key in keys:
        if key not in pairs:
            raise InvalidObjectException(f"incomplete partition name {name!r} - missing {key}")
    return tuple(pairs[key] for key in keys)


def exact_values(names: Iterable[str], keys: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the values of those names that have just the keys, in their order; no partition has other names."""
    found = []
    for name in names:
        pairs = name_to_pairs(name) if name else []
        if [key for key, _ in pairs] == list(keys):
            found.append(tuple(value for _, value in pairs))
    return found


def matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return the function that tells whether a name matches a pattern: `*`, `.` for one character, `|` for or.

    Hive reads patterns as regular expressions. Of these, Calve reads only what clients use: others could take forever.
    """
    if pattern is None or pattern in ("*", ".*"):
        return lambda _name: True
    parts = [_compiled(part) for part in pattern.strip().lower().split("|")]
    return lambda name: any(part.fullmatch(name) is not None for part in parts)


def matching(names: Iterable[str], pattern: str | None) -> list[str]:
    """Return the names that match a pattern, in their order."""
    matches = matcher(pattern)
    return [name for name in names if matches(name)]


def _compiled(pattern: str) -> re.Pattern[str]:
    text = ""
    for character in pattern.replace(".*", "*"):
        text += {"*": "%", ".": "_", "%": "\\%", "_": "\\_", "\\": "\\\\"}.get(character, character)
    return like_pattern(LikePattern(text))
