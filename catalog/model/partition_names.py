"""Partition values as text: in paths, and in the one column where the catalog keeps them.

The escaping is Hive's (`FileUtils.escapePathName`), which Spark and Trino follow: control characters, and those that
mean something in a path, become `%` and two hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive writes for a null partition value."""

NULL_TEXTS = ("", NULL_VALUE)
"""Texts that are null: of an empty one, Hive and Spark write the null partition, and cannot read a folder `k=`."""

_LACKING = "%"
"""Stored for a value that the partition lacks; no escaped value can be a lone per cent sign."""

_ESCAPED = "\"#%'*/:=?\\{[]^"
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")
_TO_ESCAPE = re.compile(f"[\\x00-\\x1f\\x7f{re.escape(_ESCAPED)}]")


def escape(text: str) -> str:
    """Return the text as Hive writes it into a path."""
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found.group()):02X}", text)


def unescape(text: str) -> str:
    """Return the text that `escape` was given; a `%` that starts no escape is kept."""
    return _ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), text) if "%" in text else text


def folder_start(key: str) -> str:
    """Return what the name of a key's folder begins with, `k=`."""
    return f"{escape(key)}="


def partition_path(keys: Sequence[str], values: Sequence[str | None]) -> str:
    """Return `k=v/k2=v2`, escaped; a null, empty or lacking value as `__HIVE_DEFAULT_PARTITION__`."""
    return "/".join(
        f"{escape(key)}={NULL_VALUE if not value else escape(value)}"
        for key, value in zip(keys, (*values, *[None] * (len(keys) - len(values))), strict=True)
    )


def folder_template(location: str, keys: Sequence[str]) -> str:
    """Return the default folder of a table's partitions, with `%s` for each value as `pack_values` writes it."""
    names = (folder_start(key).replace("%", "%%") + "%s" for key in keys)
    return "/".join((location.replace("%", "%%"), *names))


def parse_partition_path(path: str) -> list[tuple[str, str | None]]:
    """Return the (key, value) pairs of a Hive-style path; parts without `=` are left out."""
    pairs = (part.split("=", 1) for part in path.split("/") if "=" in part)
    return [(unescape(key), None if value in NULL_TEXTS else unescape(value)) for key, value in pairs]


def pack_values(values: Sequence[str | None], key_count: int) -> str:
    """Return the values as one text, separated by slashes; `unpack_values` reads it back."""
    packed = "/".join(NULL_VALUE if not value else escape(value) for value in values)
    if len(values) < key_count:
        packed += ("/" if values else "") + "/".join([_LACKING] * (key_count - len(values)))
    return packed


def unpack_values(packed: str) -> tuple[str | None, ...]:
    """Return the values of a packed text; None for null and for a value that is lacking."""
    if "%" not in packed and NULL_VALUE not in packed:
        return tuple(packed.split("/"))
    return tuple(None if part in (NULL_VALUE, _LACKING) else unescape(part) for part in packed.split("/"))


def given_values(packed: str) -> tuple[str | None, ...]:
    """Return the values as they were packed: None for null only, and nothing for the last keys that lack a value."""
    values = unpack_values(packed)
    return values[: len(values) - packed.split("/").count(_LACKING)] if _LACKING in packed else values
