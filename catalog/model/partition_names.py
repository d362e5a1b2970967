"""Partition values as strings: in paths, and packed into one column of the catalog.

The escaping is Hive's (`FileUtils.escapePathName`), which Spark and Trino also use: control characters and characters
with a meaning in paths become `%` and two hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Hive's string for a null partition value."""

NULL_TEXTS = ("", NULL_VALUE)
"""Strings that mean null: Hive and Spark write an empty string as null, and cannot read a folder `k=`."""

LACKING_VALUE = "%"
"""Stored for a missing value; no escaped value is a single percent sign."""

_ESCAPED = "\"#%'*/:=?\\{[]^"
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")
_TO_ESCAPE = re.compile(f"[\\x00-\\x1f\\x7f{re.escape(_ESCAPED)}]")


def escape(text: str) -> str:
    """Return the string as Hive writes it in a path."""
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match.group()):02X}", text)


def unescape(text: str) -> str:
    """Return the original of an escaped string; a `%` that starts no escape is kept."""
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text) if "%" in text else text


def folder_start(key: str) -> str:
    """Return the prefix `k=` of the names of a key's folders."""
    return f"{escape(key)}="


def partition_path(keys: Sequence[str], values: Sequence[str | None]) -> str:
    """Return `k=v/k2=v2`, escaped; a null, empty or missing value as `__HIVE_DEFAULT_PARTITION__`."""
    return "/".join(
        f"{escape(key)}={NULL_VALUE if not value else escape(value)}"
        for key, value in zip(keys, (*values, *[None] * (len(keys) - len(values))), strict=True)
    )


def folder_template(location: str, keys: Sequence[str]) -> str:
    """Return the default folder of a table's partitions, with `%s` for each value in the form of `pack_values`."""
    names = (folder_start(key).replace("%", "%%") + "%s" for key in keys)
    return "/".join((location.replace("%", "%%"), *names))


def parse_partition_path(path: str) -> list[tuple[str, str | None]]:
    """Return the (key, value) pairs of a Hive-style path; parts without `=` are skipped."""
    pairs = (part.split("=", 1) for part in path.split("/") if "=" in part)
    return [(unescape(key), None if value in NULL_TEXTS else unescape(value)) for key, value in pairs]


def pack_values(values: Sequence[str | None], key_count: int) -> str:
    """Return the values as one string, separated by slashes; `unpack_values` is the inverse."""
    packed = "/".join(NULL_VALUE if not value else escape(value) for value in values)
    if len(values) < key_count:
        packed += ("/" if values else "") + "/".join([LACKING_VALUE] * (key_count - len(values)))
    return packed


def unpack_values(packed: str) -> tuple[str | None, ...]:
    """Return the values of a packed string; None for null and for missing values."""
    if "%" not in packed and NULL_VALUE not in packed:
        return tuple(packed.split("/"))
    return tuple(None if part in (NULL_VALUE, LACKING_VALUE) else unescape(part) for part in packed.split("/"))


def given_values(packed: str) -> tuple[str | None, ...]:
    """Return the values as packed: None for null only; missing values of the last keys are left out."""
    values = unpack_values(packed)
    return values[: len(values) - packed.split("/").count(LACKING_VALUE)] if LACKING_VALUE in packed else values
