"""Values of the types of partition columns: as Python values, and in the notations of users, filters and DuckDB."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from tests.support.strategies import DECIMALS, INTEGER_BITS, Day, days, decimals, integers, texts

Value = int | str | bool | float | Decimal | Day | datetime

HASHED_DECIMALS = ("decimal(10,2)", "decimal(5,5)")
TEXTS = {"string": 12, "varchar(4)": 4, "char(3)": 3}
FLOATS = ("double", "float")
TYPES = (*INTEGER_BITS, *DECIMALS, *TEXTS, *FLOATS, "date", "timestamp", "boolean")
HASHED_TYPES = tuple(each for each in TYPES if each not in FLOATS and (each not in DECIMALS or each in HASHED_DECIMALS))

LONG = ("x" * 200 + "a", "x" * 200 + "b", "x" * 127, "x" + "中" * 60, "\U0010ffff" * 50, "\x00" * 90, "y")
"""Strings longer than the catalog's minima and maxima, of which some differ only after the cut."""

# Characters that end or escape an encoded string are ordinary; blanks are significant, and pad a char.
ODD = (
    "",
    "a",
    "a ",
    "a\x00",
    "a\x01",
    "a\x02",
    "ab",
    "A",
    " a",
    "a b",
    "'",
    "\\",
    "(a)",
    "a,b",
    "%",
    "_",
    "ä",
    "\ue000",
    "😀",
)


def order(value: Value) -> Any:
    """Return a sort key of a value: NaN is greater than all numbers."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def normal(kind: str, value: Value) -> Value:
    """Return a value as a column of the type has it."""
    if kind == "float":
        assert isinstance(value, float)
        return struct.unpack(">f", struct.pack(">f", value))[0]
    return value.rstrip(" ").ljust(TEXTS[kind]) if kind.startswith("char") and isinstance(value, str) else value


@lru_cache
def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Values of a type, often at a limit or close to others."""
    if kind in INTEGER_BITS:
        return st.integers(-3, 30) | integers(kind)
    if kind in DECIMALS:
        return decimals(*DECIMALS[kind])
    if kind in TEXTS:
        short = st.text(st.sampled_from("ab"), max_size=2) | st.sampled_from(ODD) | texts(min(TEXTS[kind], 6))
        usual = short | st.sampled_from(LONG) if kind == "string" else short
        return usual.filter(lambda text: len(text) <= TEXTS[kind] or kind == "string").map(
            lambda text: normal(kind, text)
        )
    if kind in FLOATS:
        near = st.sampled_from([0.0, -0.0, 0.5, -1.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 1.1])
        return (near | st.floats(width=32, allow_subnormal=False)).map(lambda number: normal(kind, number))
    if kind == "date":
        return st.builds(Day, st.just(2014), st.sampled_from([1, 2]), st.integers(1, 28)) | days()
    if kind == "timestamp":
        return st.datetimes(datetime(2014, 1, 1), datetime(2014, 1, 3)).map(_rounded) | st.datetimes()
    return st.booleans()


def _rounded(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=moment.microsecond % 3)


@st.composite
def pools(draw: st.DrawFn, kind: str, size: int = 10) -> list[Any]:
    """A few distinct values, ascending, for schemes, rows and filters, so that they match."""
    found = draw(st.lists(values_of(kind), min_size=2, max_size=size))
    distinct = {order(value): value for value in found}
    return [distinct[each] for each in sorted(distinct)]


def stored(value: Value) -> Any:
    """Return a value as data files store it: days and microseconds since 1970."""
    match value:
        case Day():
            # Python's calendar begins with the year 1, and repeats after 400 years.
            shift = 400 if value.year < 400 else 0
            day = date(value.year + shift, value.month, value.day).toordinal() - _EPOCH_DAY
            return day - 146_097 * bool(shift)
        case datetime():
            return (value - datetime(1970, 1, 1)) // datetime.resolution
    return value


_EPOCH_DAY = date(1970, 1, 1).toordinal()

# --- notations ------------------------------------------------------------------------------------------------------


def plain(value: Value) -> str:
    """Return a value as a string for Spark's and DuckDB's casts."""
    match value:
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
        case float():
            return repr(value)
        case datetime():
            return f"{value.year:04}-{value:%m-%d %H:%M:%S.%f}"
    return str(value)


def spellings(value: Value) -> list[str]:
    """Return the spellings of a bound or list value; none for a string that cannot be one."""
    match value:
        case bool():
            return [plain(value), plain(value).upper()]
        case int():
            return [str(value), f"{value:+d}", f"{'-' * (value < 0)}00{abs(value)}"]
        case Decimal():
            return [plain(value), str(value), f"{value:.{max(1, -int(value.as_tuple().exponent))}f}"]
        case Day():
            return [str(value), str(value).replace("-", "/"), f"{value.year:04}-{value.month}-{value.day}"]
        case datetime():
            return [plain(value), plain(value).replace("-", "/").replace(" ", "T") + "Z", *_short(value)]
        case str():
            return [value] if value and value == value.strip() else []
    return [plain(value)]


def _short(moment: datetime) -> list[str]:
    text = plain(moment).removesuffix(".000000")
    return [text, *([text.removesuffix(" 00:00:00").replace("-", "/")] if text.endswith(" 00:00:00") else [])]


def escaped(text: str) -> str:
    """Return a value in the syntax of RANGE_INFO, LIST_INFO and groups."""
    return "".join(f"\\{character}" if character in "\\()," else character for character in text)


def literal(value: Value) -> str:
    """Return a value as a literal of the filter language."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return plain(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"'{value!r}'"
    return "'" + plain(value).replace("\\", "\\\\").replace("'", "''") + "'"


def duckdb_literal(kind: str, value: Value) -> str:
    """Return a value as a literal of DuckDB's SQL."""
    text = plain(value)
    pieces = " || ".join("'" + part.replace("'", "''") + "'" for part in text.split("\0")).replace(
        " || ", " || chr(0) || "
    )
    return f"CAST({pieces} AS {duckdb_type(kind)})"


def duckdb_type(kind: str) -> str:
    """Return a column's type in DuckDB."""
    return {"string": "varchar", "char(3)": "varchar", "varchar(4)": "varchar"}.get(kind, kind)


# --- filters --------------------------------------------------------------------------------------------------------

Row = dict[str, Any]
Tree = tuple[Any, ...]
"""A filter: `("=", column, value)`, also with other operators, `("in", column, *values)`, `("begins", column, prefix)`,
`("null", column)`, or `("not", tree)`, `("and", *trees)`, `("or", *trees)`."""


@dataclass(frozen=True)
class Where:
    """A filter in the catalog's language, in DuckDB's SQL, and as a function, which returns None for unknown."""

    text: str
    sql: str
    test: Callable[[Row], bool | None]
    tree: Tree


def _negatable(negation: str, tree: Tree) -> Tree:
    return ("not", tree) if negation else tree


def _compare(name: str, test: Callable[[Any], bool]) -> Callable[[Row], bool | None]:
    return lambda row: None if row[name] is None else test(row[name])


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, two: bool(one == two),
    "<>": lambda one, two: bool(one != two),
    "<": lambda one, two: bool(one < two),
    "<=": lambda one, two: bool(one <= two),
    ">": lambda one, two: bool(one > two),
    ">=": lambda one, two: bool(one >= two),
}


def comparison(name: str, kind: str, operator: str, value: Value) -> Where:
    """Return `column operator value`."""
    test = _TESTS[operator]
    return Where(
        f"{name} {operator} {literal(value)}",
        f"{name} {operator} {duckdb_literal(kind, value)}",
        _compare(name, lambda own: test(order(own), order(value))),
        (operator, name, value),
    )


def membership(name: str, kind: str, negation: str, members: Sequence[Value]) -> Where:
    """Return `column [not] in (…)`."""
    keys = {order(value) for value in members}
    return Where(
        f"{name} {negation}in ({', '.join(map(literal, members))})",
        f"{name} {negation}IN ({', '.join(duckdb_literal(kind, each) for each in members)})",
        _compare(name, lambda own: (order(own) in keys) != bool(negation)),
        _negatable(negation, ("in", name, *members)),
    )


def between(name: str, kind: str, negation: str, low: Value, high: Value) -> Where:
    """Return `column [not] between low and high`."""
    return Where(
        f"{name} {negation}between {literal(low)} and {literal(high)}",
        f"{name} {negation}BETWEEN {duckdb_literal(kind, low)} AND {duckdb_literal(kind, high)}",
        _compare(name, lambda own: (order(low) <= order(own) <= order(high)) != bool(negation)),
        _negatable(negation, ("and", (">=", name, low), ("<=", name, high))),
    )


def begins(name: str, kind: str, negation: str, prefix: str) -> Where:
    """Return `column [not] like 'prefix%'`."""
    pattern = "".join(f"!{character}" if character in "!%_" else character for character in prefix) + "%"
    return Where(
        f"{name} {negation}like {literal(pattern)} escape '!'",
        f"{name} {negation}LIKE {duckdb_literal(kind, pattern)} ESCAPE '!'",
        _compare(name, lambda own: own.startswith(prefix) != bool(negation)),
        _negatable(negation, ("begins", name, prefix)),
    )


def nothing(name: str, negation: str) -> Where:
    """Return `column is [not] null`."""
    text = f"{name} is {negation}null"
    return Where(text, text, lambda row: (row[name] is None) != bool(negation), _negatable(negation, ("null", name)))


@st.composite
def conditions(draw: st.DrawFn, columns: Sequence[tuple[str, str, Sequence[Value]]]) -> Where:
    """A condition on one of the columns, which are given by name, type and typical values."""
    name, kind, usual = draw(st.sampled_from(columns))
    value = st.sampled_from(usual) | st.sampled_from(usual) | values_of(kind)
    negation = draw(st.sampled_from(["", "", "not "]))
    form = draw(st.sampled_from(["compare", "compare", "compare", "in", "between", "null", "like"]))
    match form:
        case "in":
            return membership(name, kind, negation, draw(st.lists(value, min_size=1, max_size=4)))
        case "between":
            return between(name, kind, negation, draw(value), draw(value))
        case "null":
            return nothing(name, negation)
        case "like" if kind in TEXTS:
            text = draw(value)
            return begins(name, kind, negation, text[: draw(st.integers(0, len(text)))])
    return comparison(name, kind, draw(st.sampled_from(list(_TESTS))), draw(value))


def _joined(parts: Sequence[Where], word: str) -> Where:
    decisive = word == "or"

    def test(row: Row) -> bool | None:
        answers = [part.test(row) for part in parts]
        return decisive if decisive in answers else None if None in answers else not decisive

    return Where(
        f" {word} ".join(f"({part.text})" for part in parts),
        f" {word} ".join(f"({part.sql})" for part in parts),
        test,
        (word, *[part.tree for part in parts]),
    )


def _negated(part: Where) -> Where:
    def test(row: Row) -> bool | None:
        answer = part.test(row)
        return None if answer is None else not answer

    return Where(f"not ({part.text})", f"NOT ({part.sql})", test, ("not", part.tree))


def filters(columns: Sequence[tuple[str, str, Sequence[Value]]]) -> st.SearchStrategy[Where]:
    """Conditions, joined by AND, OR and NOT."""
    return st.recursive(
        conditions(columns),
        lambda inner: (
            st.builds(_joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "or"]))
            | inner.map(_negated)
        ),
        max_leaves=4,
    )
