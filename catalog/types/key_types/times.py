"""Types of partition keys whose values are dates or timestamps."""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import ClassVar

from catalog.errors import PartitionProblem
from catalog.types.key_types.base import SIGN_BIT, KeyType, KeyValue, KeyValueError, unfit

_DAY = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_MIDNIGHT = r"(?:[ T]00:00:00(?:\.0{1,9})?)?"
_ZONE = r"(?: ?(Z|UTC|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?))?"
_MORE_DIGITS = re.compile(rf"\.[0-9]{{6}}([0-9]{{1,3}}){_ZONE}\s*$", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DateType(KeyType):
    """date: proleptic Gregorian, 0000-01-01 … 9999-12-31 (year 0 is a leap year, as ISO 8601 counts)."""

    name = "date"
    width = 3
    spelling: ClassVar[str] = r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    literal_spelling: ClassVar[str] = rf"\s*{_DAY}{_MIDNIGHT}\s*"
    """As `spelling`, of literals, without the slashes that they may have."""
    _TEXT = re.compile(spelling, re.ASCII)
    _LITERAL = re.compile(literal_spelling, re.ASCII)
    _TOP_BIT = 1 << 23

    def parse(self, text: str) -> int:
        """Return the date as an int that sorts as dates do; the string is yyyy-MM-dd."""
        return self._read(self._TEXT, text)

    def parse_literal(self, text: str) -> int:
        """Return the date; month and day may have one digit, slashes are allowed, and 00:00:00 may follow."""
        return self._read(self._LITERAL, text.replace("/", "-"))

    def parse_start(self, text: str) -> int | None:
        """Return the number from which the dates follow that begin with a string; None if no date does so."""
        match = self._TEXT.fullmatch(text + "0000-00-00"[len(text) :])
        return None if match is None else self._number(*map(int, match.groups()))

    @staticmethod
    def _number(year: int, month: int, day: int) -> int:
        return year << 9 | month << 5 | day

    def _read(self, pattern: re.Pattern[str], text: str) -> int:
        match = pattern.fullmatch(text)
        if match is None:
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text[:40]!r} is not a date in the form yyyy-MM-dd")
        year, month, day = (int(part) for part in match.groups())
        if not 1 <= month <= 12 or not 1 <= day <= _days(year, month):
            raise KeyValueError(PartitionProblem.INVALID_TYPE, f"{text!r} is not a valid date")
        return self._number(year, month, day)

    def format(self, value: KeyValue) -> str:
        """Return the date in quotes, as yyyy-MM-dd."""
        number = int(value)
        return f"'{number >> 9:04}-{number >> 5 & 15:02}-{number & 31:02}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return 3 bytes."""
        return (int(value) | self._TOP_BIT).to_bytes(3)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the date and the position after it."""
        return int.from_bytes(key[start : start + 3]) ^ self._TOP_BIT, start + 3


def _days(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


class TimestampType(KeyType):
    """timestamp: 0001-01-01 00:00:00 … 9999-12-31 23:59:59.999999.

    Hive's timestamp has no time zone; Spark's is an instant that is formatted in the session's zone. Here a string is a
    UTC time, because Calve's own sessions use UTC. Hive counts nanoseconds; Spark, Iceberg and Calve count
    microseconds.
    """

    name = "timestamp"
    width = 9
    spelling: ClassVar[str] = (
        r"(?!0000)([0-9]{4})-([0-9]{2})-([0-9]{2})"
        r"(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?)?()"
    )
    literal_spelling: ClassVar[str] = (
        rf"\s*(?!0000){_DAY}(?:[ T]([0-9]{{1,2}}):([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:\.([0-9]{{1,9}}))?)?{_ZONE})?\s*"
    )
    _TEXT = re.compile(spelling, re.ASCII)
    _LITERAL = re.compile(literal_spelling, re.ASCII)

    def parse(self, text: str) -> int:
        """Return the timestamp of yyyy-MM-dd or yyyy-MM-dd HH:mm:ss[.f…]; trailing zeros are ignored."""
        return self._read(self._TEXT, text)

    def parse_literal(self, text: str) -> int:
        """Return the timestamp; parts may have one digit, time or seconds may be omitted, and slashes are allowed.

        An offset from UTC may follow, `Z`, `UTC` or such as `+01:00`; the result is then the time in UTC.
        """
        return self._read(self._LITERAL, text.replace("/", "-"))

    def has_zone(self, text: str) -> bool:
        """Return whether a literal has an offset from UTC, so that it is an instant."""
        match = self._LITERAL.fullmatch(text.replace("/", "-"))
        return match is not None and match.group(8) is not None

    def parse_bound(self, text: str) -> tuple[int, bool]:
        """Return the timestamp, without what is less than a microsecond, and whether that is nothing."""
        match = _MORE_DIGITS.search(text)
        if match is None:
            return self.parse_literal(text), True
        return self.parse_literal(text[: match.start(1)] + text[match.end(1) :]), not match.group(1).strip("0")

    @staticmethod
    def _read(pattern: re.Pattern[str], text: str) -> int:
        match = pattern.fullmatch(text)
        if match is None:
            raise unfit(f"{text[:40]!r} is not a timestamp in the form yyyy-MM-dd HH:mm:ss.ffffff")
        *whole, fraction, zone = match.groups()
        year, month, day, hour, minute, second = (int(part or 0) for part in whole)
        digits = (fraction or "").rstrip("0").ljust(6, "0")
        if len(digits) > 6:
            raise unfit(f"{text[:40]!r} is more precise than a microsecond, which is not supported")
        try:
            moment = datetime(year, month, day, hour, minute, second, int(digits), tzinfo=UTC) - _offset(zone)
        except (ValueError, OverflowError) as error:
            raise unfit(f"{text[:40]!r} is not a valid timestamp: {error}") from None
        return (moment - _EPOCH) // timedelta(microseconds=1)

    def format(self, value: KeyValue) -> str:
        """Return the timestamp in quotes, as yyyy-MM-dd HH:mm:ss[.ffffff]."""
        moment = (_EPOCH + timedelta(microseconds=int(value))).replace(tzinfo=None)
        return f"'{moment.isoformat(sep=' ')}'"

    def encode(self, value: KeyValue) -> bytes:
        """Return `01` and 8 bytes."""
        return b"\x01" + (int(value) + SIGN_BIT).to_bytes(8)

    def decode(self, key: bytes, start: int) -> tuple[int, int]:
        """Return the timestamp and the position after it."""
        return int.from_bytes(key[start + 1 : start + 9]) - SIGN_BIT, start + 9


def _offset(zone: str | None) -> timedelta:
    """Return the offset from UTC that a string such as +01:00, +0100 or +01 means."""
    if not zone or zone in ("Z", "UTC"):
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset


def moment_of(local: int, zone: tzinfo | None) -> int:
    """Return the instant, in microseconds since 1970 UTC, of a zone's local time (also in microseconds since 1970).

    As in Java, an ambiguous local time is the earlier instant, and one inside a gap is shifted by the length of the
    gap.
    """
    shown = (_EPOCH + timedelta(microseconds=local)).replace(tzinfo=zone)
    offset = shown.utcoffset() or timedelta()
    return local - offset // timedelta(microseconds=1)
