"""Key types and their values for property tests, weighted towards the limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from hypothesis import strategies as st

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DECIMALS = {"decimal(10,2)": (10, 2), "decimal(38,0)": (38, 0), "decimal(38,38)": (38, 38), "decimal(5,5)": (5, 5)}
TEXTS = ("string", "char(3)", "char(255)", "varchar(4)", "varchar(65535)")
TYPE_NAMES = (*INTEGER_BITS, *DECIMALS, "float", "double", "boolean", "date", "timestamp", *TEXTS)

# All widths of UTF-8, the lowest and highest code points, and special characters of paths and patterns.
CHARACTERS = "\x03aAbzZ09 %_/\\'\"=\x7f\x80\xffäß\u07ff\u0800中\ud7ff\ue000\uffff\U00010000😀\U0010ffff"


@dataclass(frozen=True, order=True)
class Day:
    """A date of the years 0000 to 9999, of which `datetime.date` does not have the first; ordered by time."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        """Return yyyy-MM-dd."""
        return f"{self.year:04}-{self.month:02}-{self.day:02}"


def days_in_month(year: int, month: int) -> int:
    """Return the length of a month of the proleptic Gregorian calendar."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@st.composite
def days(draw: st.DrawFn) -> Day:
    """Any day, often one at a limit."""
    year = draw(st.sampled_from([0, 1, 4, 99, 100, 1582, 1900, 2000, 2023, 2024, 9998, 9999]) | st.integers(0, 9999))
    month = draw(st.sampled_from([1, 2, 12]) | st.integers(1, 12))
    last = days_in_month(year, month)
    return Day(year, month, draw(st.sampled_from([1, last]) | st.integers(1, last)))


def integers(name: str) -> st.SearchStrategy[int]:
    """Any value of an integer type, often one at a limit."""
    limit = 1 << (INTEGER_BITS[name] - 1)
    near = [-limit, -limit + 1, -1, 0, 1, limit // 256, limit - 2, limit - 1]
    return st.sampled_from(near) | st.integers(-limit, limit - 1)


def texts(maximum: int) -> st.SearchStrategy[str]:
    """Strings of the characters that values may have, including the empty string."""
    allowed = st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02")
    return st.text(st.sampled_from(CHARACTERS) | allowed, max_size=maximum)


def maximum_length(name: str) -> int:
    """Return the maximum number of characters to draw for a string type."""
    return min(int(name[name.index("(") + 1 : -1]), 12) if "(" in name else 12


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Any value of a decimal type, often one at a limit."""
    limit = 10**precision - 1
    unscaled = st.integers(-30, 30) | st.sampled_from([limit, -limit, 0, limit - 1]) | st.integers(-limit, limit)
    return unscaled.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))


def values(name: str) -> st.SearchStrategy[int | float | str | Decimal | Day | datetime]:
    """Values of a type whose order in Python is that of their index keys; without NaN, which has no order in Python."""
    if name in INTEGER_BITS:
        return integers(name)
    if name in DECIMALS:
        return decimals(*DECIMALS[name])
    if name in ("float", "double"):
        return st.floats(width=32 if name == "float" else 64, allow_nan=False)
    if name == "boolean":
        return st.booleans()
    if name == "timestamp":
        return st.datetimes()
    if name == "date":
        return days()
    if not name.startswith("char"):
        return texts(maximum_length(name))
    length = int(name[name.index("(") + 1 : -1])
    printed = st.characters(exclude_categories=["Cs"], min_codepoint=32)
    drawn = st.text(st.sampled_from(CHARACTERS[1:]) | printed, max_size=maximum_length(name))
    return drawn.map(lambda text: text.ljust(length))
