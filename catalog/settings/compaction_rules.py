"""The policy by which the small files of a table's partitions are compacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Self

from catalog.errors import InvalidConfigurationError
from catalog.settings.problems import Problems

_UNITS = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SIZE = re.compile(r"\s*(\d{1,12})\s*(B|KB|MB|GB|TB)?\s*", re.IGNORECASE)
_AGE = re.compile(r"\s*(\d{1,6})\s*(m|h|d)\s*")
_AGE_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_COUNT = re.compile(r"\s*(\d{1,9})\s+partitions?\s*")
_LEAST_TARGET, _MOST_TARGET = 2**20, 2**40
_MOST_FILES = 1_000_000


@dataclass(frozen=True)
class DailyLimit:
    """How much of a table may be compacted within 24 hours; None for a number that is not limited."""

    size_bytes: int | None = None
    partitions: int | None = None

    def __str__(self) -> str:
        """Return the limit as users read it."""
        if self.size_bytes is not None:
            return f"{self.size_bytes:,} bytes"
        return "everything" if self.partitions is None else f"{self.partitions:,} partition(s)"


@dataclass(frozen=True)
class CompactionRules:
    """When partitions of one table are compacted.

    Attributes:
        target_file_size: The approximate size of the new files, in bytes; None for the table's setting.
        min_files: A partition with fewer files is left alone.
        min_age: A partition that has changed within this time is left alone, because it may change again.
        at_most_per_day: The maximum that is compacted within 24 hours, including compactions by hand.
    """

    target_file_size: int | None = None
    min_files: int = 5
    min_age: timedelta = timedelta(hours=1)
    at_most_per_day: DailyLimit = DailyLimit()

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Return the rules in the field `compaction` of an entry of the list of tables; missing ones have defaults.

        Raises:
            InvalidConfigurationError: It is not a mapping, a field is unknown, or a value is invalid.
        """
        if not isinstance(config, Mapping):
            raise InvalidConfigurationError(
                f"compaction is {config!r}, expected a mapping such as {{target_file_size: 256MB, min_files: 10}}"
            )
        known = [rule.name for rule in fields(cls)]
        problems, values = Problems(), dict[str, Any]()
        with problems:
            if unknown := sorted(map(str, set(config) - set(known))):
                raise InvalidConfigurationError(
                    f"unknown compaction field {', '.join(unknown)}; the fields are {', '.join(known)}"
                )
        for name in known:
            if name in config:
                with problems:
                    values[name] = _READERS[name](config[name])
        problems.report()
        return cls(**values)


def _target(value: Any) -> int:
    size = _size(value)
    if size is None or not _LEAST_TARGET <= size <= _MOST_TARGET:
        raise _invalid("target_file_size", value, "a size from 1MB to 1TB such as 256MB")
    return size


def _min_files(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= _MOST_FILES:
        raise _invalid("min_files", value, f"a whole number from 2 to {_MOST_FILES:,}")
    return value


def _min_age(value: Any) -> timedelta:
    match = _AGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _invalid("min_age", value, "a time such as 30m, 1h or 2d")
    return int(match[1]) * _AGE_UNITS[match[2]]


def _daily(value: Any) -> DailyLimit:
    count = _COUNT.fullmatch(value) if isinstance(value, str) else None
    # A number without a unit could be meant as either.
    size = _size(value) if isinstance(value, str) and not value.strip().isdigit() else None
    limit = DailyLimit(partitions=int(count[1])) if count else DailyLimit(size_bytes=size)
    if not (limit.size_bytes or limit.partitions):
        raise _invalid("at_most_per_day", value, "a size such as 50GB, or a number such as 200 partitions")
    return limit


def _size(value: Any) -> int | None:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return int(match[1]) * _UNITS[(match[2] or "").upper()]
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _invalid(name: str, value: Any, expected: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"compaction.{name} is {value!r}, expected {expected}")


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "target_file_size": _target,
    "min_files": _min_files,
    "min_age": _min_age,
    "at_most_per_day": _daily,
}
