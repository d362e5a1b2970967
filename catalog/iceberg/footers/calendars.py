"""Dates and timestamps of an older calendar, which Hive's and Spark's readers convert, and Iceberg's readers do not.

Hive, and Spark before 3.0, use the Julian calendar for days before 1582-10-15, and other time zone rules for times
before 1900. Their files record that, or do not record the proleptic Gregorian calendar, which Iceberg requires.

Source: https://orc.apache.org/specification/ORCv1/ (`calendar`); Spark's `DataSourceUtils.datetimeRebaseSpec`; Hive's
`DataWritableReadSupport` (`writer.date.proleptic`); https://iceberg.apache.org/spec/#primitive-types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from catalog.errors import FileProblem, UnusableFileError

FIRST_GREGORIAN_DAY = -141_427
"""1582-10-15, in days since 1970."""
FIRST_STANDARD_DAY = -25_567
"""1900-01-01: since then, Spark assumes that both time zone rules agree."""
MICROSECONDS_OF_DAY = 86_400_000_000

_VERSION, _ZONE, _LEGACY_DATES, _LEGACY_96_BITS = (
    f"org.apache.spark.{name}" for name in ("version", "timeZone", "legacyDateTime", "legacyINT96")
)
_HIVE = "writer.date.proleptic"
_ICEBERG = "iceberg.schema"
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_ADVICE = "write the file again, as Parquet, with Spark 3 or later and the rebase mode CORRECTED"
_NEW_DATES, _NEW_96_BITS = (3, 0), (3, 1)
"""The first versions of Spark that write the proleptic calendar by default."""


class Calendar(NamedTuple):
    """The values of a file that are converted by readers.

    Attributes:
        first_day: Dates before it are converted; None for no date.
        first_microsecond: Timestamps before it are converted; None for no timestamp.
        has_old_96_bits: Timestamps of 96 bits, which have no statistics, may be converted.
        is_of_spark: Spark's reader converts them, too, so that a comparison of both sides shows differences.
    """

    first_day: int | None = None
    first_microsecond: int | None = None
    has_old_96_bits: bool = False
    is_of_spark: bool = False


PROLEPTIC = Calendar()


def calendar_of(metadata: Callable[[str], str | None], is_by_java: bool) -> Calendar:
    """Return the calendar of a Parquet or Avro file.

    Args:
        metadata: Returns the value of a key of the file's own metadata.
        is_by_java: The file was written by Hive's library, which uses the older calendar unless a key records another.
    """
    spark = _version(metadata(_VERSION))
    if spark is not None:
        is_old = spark < _NEW_DATES or metadata(_LEGACY_DATES) is not None
        first = FIRST_GREGORIAN_DAY if metadata(_ZONE) in _UTC else FIRST_STANDARD_DAY
        return Calendar(
            FIRST_GREGORIAN_DAY if is_old else None,
            first * MICROSECONDS_OF_DAY if is_old else None,
            spark < _NEW_96_BITS or metadata(_LEGACY_96_BITS) is not None,
            is_of_spark=True,
        )
    hive = metadata(_HIVE)
    is_old = is_by_java and metadata(_ICEBERG) is None if hive is None else hive != "true"
    return Calendar(FIRST_GREGORIAN_DAY) if is_old else PROLEPTIC


def _version(text: str | None) -> tuple[int, ...] | None:
    numbers = re.match(r"(\d+)\.(\d+)", text or "")
    return None if numbers is None else tuple(map(int, numbers.groups()))


def old_values(path: str, name: str, *, is_date: bool, first_day: int) -> UnusableFileError:
    """Return the error for a column with values before a day, which readers convert."""
    first = "1582-10-15" if first_day == FIRST_GREGORIAN_DAY else "1900-01-01"
    return UnusableFileError(
        path,
        FileProblem.OLD_CALENDAR,
        f"column {name!r} has {'dates' if is_date else 'timestamps'} before {first}, which Hive's and Spark's readers "
        f"convert from an older calendar, and Iceberg's do not; {_ADVICE}",
    )


def unknown_values(path: str, names: Iterable[str], *, is_comparable: bool) -> UnusableFileError:
    """Return the error for columns that may have values that readers convert."""
    return UnusableFileError(
        path,
        FileProblem.OLD_CALENDAR,
        f"column {', '.join(map(repr, names))} may have dates or timestamps that Hive's and Spark's readers convert "
        "from an older calendar, and Iceberg's do not: the file does not record the minimum; "
        f"{'compare both sides (`verify => true`), or ' * is_comparable}{_ADVICE}",
    )
