"""Intervals of RANGE_INTERVAL: computation of the next bounds, by calendar or by number."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

from catalog.errors import SchemeValueError
from catalog.types.key_types import DateType, DecimalType, IntegerType, KeyType, KeyValue, KeyValueError, TimestampType

_TEXT = re.compile(r"\s*([0-9]{1,9})\s*(year|quarter|month|week|day|hour|minute|second)s?\s*", re.IGNORECASE)
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_SECONDS = {"week": 7 * 86_400, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Interval:
    """The width of automatically added ranges: months, microseconds or a number; the other two are 0."""

    text: str
    months: int = 0
    microseconds: int = 0
    number: int = 0

    def bounds_after(self, anchor: KeyValue, value_type: KeyType) -> Iterator[KeyValue]:
        """Yield the bounds that follow an anchor. Each is computed from the anchor, so that bounds return to a 31st.

        Bounds of dates and timestamps end in the year 9999; bounds of numbers do not end.

        Raises:
            SchemeValueError: The anchor is in the year 0, which Python's calendar does not have.
        """
        if not self.months and not self.microseconds:
            yield from count(int(anchor) + self.number, self.number)
        moment = self._moment(anchor, value_type)
        for steps in count(1):
            try:
                moved = self._by_months(moment, steps) + steps * self.microseconds * _MICROSECOND
            except (OverflowError, ValueError):
                return
            yield self._value(moved, value_type)

    def _moment(self, value: KeyValue, value_type: KeyType) -> datetime:
        number = int(value)
        if not isinstance(value_type, DateType):
            return _EPOCH + number * _MICROSECOND
        try:
            return datetime(number >> 9, number >> 5 & 15, number & 31, tzinfo=UTC)
        except ValueError:
            raise SchemeValueError(
                f"INTERVAL {self.text} cannot be counted from {value_type.format(value)}; use a last bound in the "
                "year 1 or later"
            ) from None

    @staticmethod
    def _value(moment: datetime, value_type: KeyType) -> KeyValue:
        if isinstance(value_type, DateType):
            return moment.year << 9 | moment.month << 5 | moment.day
        return (moment - _EPOCH) // _MICROSECOND

    def _by_months(self, moment: datetime, steps: int) -> datetime:
        months = moment.year * 12 + moment.month - 1 + steps * self.months
        year, month = divmod(months, 12)
        day = min(moment.day, calendar.monthrange(year, month + 1)[1])
        return moment.replace(year=year, month=month + 1, day=day)


def parse_interval(text: str, value_type: KeyType) -> Interval:
    """Return the interval of a string: `1 month`, `6 hours`, or a number for numeric columns.

    Raises:
        SchemeValueError: It is not an interval, or not one for values of this type.
    """
    if isinstance(value_type, IntegerType | DecimalType):
        try:
            number = int(value_type.parse(text.strip()))
        except KeyValueError as error:
            raise SchemeValueError(f"INTERVAL {text!r} is not a number of type {value_type}: {error}") from None
        if number <= 0:
            raise SchemeValueError(
                f"INTERVAL {text!r} is not greater than 0; a column of type {value_type} needs a positive number"
            )
        return Interval(text.strip(), number=number)
    if not isinstance(value_type, DateType | TimestampType):
        raise SchemeValueError(
            f"RANGE_INTERVAL is for date, timestamp, integer and decimal columns, not for {value_type}; use RANGE"
        )
    match = _TEXT.fullmatch(text)
    if match is None or not int(match.group(1)):
        raise SchemeValueError(
            f"INTERVAL {text!r} cannot be parsed; use a number and a unit, such as 1 month: year, quarter, month, "
            "week, day, hour, minute or second"
        )
    number, unit = int(match.group(1)), match.group(2).lower()
    if unit in _MONTHS:
        return Interval(text.strip(), months=number * _MONTHS[unit])
    if isinstance(value_type, DateType) and _SECONDS[unit] < 86_400:
        raise SchemeValueError(f"INTERVAL {text!r} is shorter than a day, and the partition column is a date")
    return Interval(text.strip(), microseconds=number * _SECONDS[unit] * 1_000_000)
