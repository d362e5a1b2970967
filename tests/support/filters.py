"""Random tables, partitions and filters, and an SQLite database as oracle for property tests."""

from __future__ import annotations

import math
import re
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from hypothesis import strategies as st

from catalog.model.partition_names import NULL_VALUE
from tests.support.strategies import INTEGER_BITS

TEXT_TYPES = ("string", "char(3)", "varchar(4)")
KEY_TYPES = (
    *("tinyint", "int", "bigint", "date", *TEXT_TYPES),
    *("timestamp", "decimal(5,2)", "float", "double", "boolean"),
)
KEY_NAMES = ("origin", "Year", "day", "k_4")

# Strings longer than index keys: two that differ only after the cut, and one in which the cut splits a character.
LONG = ("x" * 1100 + "a", "x" * 1100 + "b", "x" + "中" * 400)
SPELLINGS = {
    "tinyint": ("1", "01", "+1", "-1", "0", "2", "3", "127", "-128"),
    "int": ("1", "01", "+1", "-1", "0", "2", "3", "2147483647", "-2147483648"),
    "bigint": ("1", "01", "-1", "0", "2", "3", "9223372036854775807", "-9223372036854775808"),
    "date": ("0000-01-01", "0000-02-29", "1999-12-31", "2000-02-29", "2024-01-05", "2024-01-06", "9999-12-31"),
    "timestamp": (
        *("2024-01-01 00:00:00", "2024-01-01 00:00:00.0", "2024-01-01", "2024-01-01T00:00:00.000000000"),
        *("2024-01-01 00:00:00.000001", "2024-01-01 00:00:00.00000100", "2023-12-31 23:59:59.999999"),
        *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    ),
    "decimal(5,2)": (
        "0",
        "-0.00",
        "1",
        "1.0",
        "+1.00",
        "01",
        "1.01",
        "-1.5",
        "-1.50",
        ".5",
        "1e2",
        "999.99",
        "-999.99",
    ),
    "float": (
        "0",
        "-0.0",
        "0.1",
        "0.100000001",
        "1",
        "1.0",
        "16777216",
        "16777217",
        "NaN",
        "Infinity",
        "-inf",
    ),
    "double": ("0", "-0.0", "0.1", "0.10", "1", "1e0", "-1.5", "NaN", "nan", "Infinity", "-inf", "1.5e300", "5e-324"),
    "boolean": ("true", "false", "TRUE", "False"),
    "string": ("", "a", "A", "aa", "ab", "b", "a'b", 'a"b', "a\\b", "a%b", "ä", "\ue000", "😀", "10", "9", *LONG),
    "char(3)": ("", "a", "a  ", "aa", "ab", "a ", "a!", "b", "ä", "😀", "a b"),
    "varchar(4)": ("", "a", "a ", "aa", "ab", "b", "ä", "😀", "a b"),
}
UNFIT = {
    **dict.fromkeys(INTEGER_BITS, ("foo", "1.5", "99999999999999999999")),
    "float": ("one", "1_0", "\u0663", "1e300"),
    "double": ("one", "1_0", "\u0663"),
    "timestamp": ("2024-02-30 00:00:00", "2024-01-01 24:00:00", "2024-01-01 00:00:00.1234567", "2024/01/01", "soon"),
    "decimal(5,2)": ("1000", "0.001", "one", "1_0"),
    "boolean": ("1", "yes"),
    **{
        "date": ("2023-02-30", "soon"),
        "string": ("a\x01b",),
        "char(3)": ("abcd", "a\x1f"),
        "varchar(4)": ("abcde", "a\x02"),
    },
}


@dataclass(frozen=True)
class Given:
    """A table's key types and indexes, its partitions, and the filters to test."""

    key_types: tuple[str, ...]
    indexes: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[str | None, ...], ...]
    filters: tuple[Filter, ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the partition keys."""
        return KEY_NAMES[: len(self.key_types)]


@dataclass(frozen=True)
class Filter:
    """A filter in the catalog's language, and in SQLite's SQL with parameters."""

    text: str
    sql: str
    parameters: tuple[int | str | None, ...] = ()


def stored(key_type: str, text: str | None) -> int | str | None:
    """Return the value that SQLite stores for a partition's string; an empty one is null, as in Hive."""
    return comparable(key_type, text or None)


def comparable(key_type: str, text: str | None) -> int | str | None:
    """Return the value that SQLite compares for a string; None for null, and for strings that are not of the type."""
    if text is None or text == NULL_VALUE:
        return None
    if key_type in TEXT_TYPES:
        return text.rstrip(" ").ljust(3) if key_type.startswith("char") else text
    if text in UNFIT[key_type]:
        return None
    match key_type:
        case "date":
            return text
        case "timestamp":
            return f"{datetime.fromisoformat(text).isoformat():26}"
        case "decimal(5,2)":
            return int(Decimal(text) * 100)
        case "float" | "double":
            return _RANKS[key_type].index(_floating(key_type, text))
        case "boolean":
            return text.lower() == "true"
    return int(text)


def _floating(key_type: str, text: str) -> tuple[bool, float]:
    """Return a sort key of a number: NaN, which the databases cannot store, is greater than all others."""
    number = float(text)
    if key_type == "float" and math.isfinite(number):
        number = math.inf if number > 1e39 else struct.unpack("f", struct.pack("f", number))[0]
    return math.isnan(number), 0.0 if math.isnan(number) else number


_RANKS = {kind: sorted({_floating(kind, text) for text in SPELLINGS[kind]}) for kind in ("float", "double")}


class Oracle:
    """The same partitions in an SQLite table with typed columns, independent of Calve."""

    def __init__(self, key_types: Sequence[str], rows: Sequence[Sequence[str | None]]) -> None:
        """Create the table; the number of a row is its position."""
        self._database = sqlite3.connect(":memory:")
        self._database.execute("PRAGMA case_sensitive_like = ON")
        columns = [
            f"k{number} {'TEXT' if key_type in (*TEXT_TYPES, 'date', 'timestamp') else 'INTEGER'}"
            for number, key_type in enumerate(key_types)
        ]
        self._database.execute(f"CREATE TABLE partition (number INTEGER, {', '.join(columns)})")
        marks = ", ".join("?" * (len(key_types) + 1))
        for number, row in enumerate(rows):
            texts = (*row, *[None] * (len(key_types) - len(row)))
            typed = [stored(key_type, text) for key_type, text in zip(key_types, texts, strict=True)]
            self._database.execute(f"INSERT INTO partition VALUES ({marks})", (number, *typed))

    def __enter__(self) -> Oracle:
        """Return the oracle, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the database."""
        self._database.close()

    def matching(self, condition: Filter) -> list[int]:
        """Return the numbers of the rows that match."""
        query = f"SELECT number FROM partition WHERE {condition.sql} ORDER BY number"
        return [number for (number,) in self._database.execute(query, condition.parameters)]


def distinct(key_types: Sequence[str], rows: Sequence[tuple[str | None, ...]]) -> list[tuple[str | None, ...]]:
    """Return the rows without other spellings of the same partition."""
    kept: dict[tuple[object, ...], tuple[str | None, ...]] = {}
    for row in rows:
        unfit = [
            text if text is not None and text in UNFIT[kind] else None
            for kind, text in zip(key_types, row, strict=False)
        ]
        typed = [stored(kind, text) for kind, text in zip(key_types, row, strict=False)]
        kept.setdefault((tuple(unfit), tuple(typed)), row)
    return list(kept.values())


def fits(given_: Given, row: Sequence[str | None]) -> bool:
    """Return whether all indexes of the table accept a partition."""
    indexed = {position for keys in given_.indexes for position in keys}
    return all(position < len(row) for position in indexed) and is_fit(
        [given_.key_types[position] for position in indexed], [row[position] for position in indexed]
    )


def is_fit(key_types: Sequence[str], row: Sequence[str | None]) -> bool:
    """Return whether each value is one of its key's type."""
    return all(value not in UNFIT[key_type] for key_type, value in zip(key_types, row, strict=True))


# --- filters --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """The values of one case: the type and a few spellings for each key, so that filters match partitions."""

    key_types: tuple[str, ...]
    spellings: tuple[tuple[str, ...], ...]


def _written_key(position: int) -> st.SearchStrategy[str]:
    name = KEY_NAMES[position]
    return st.sampled_from([name, name.upper(), f"`{name}`", f'"{name}"', f"({name.lower()})"])


def _quoted(text: str) -> list[str]:
    escaped = text.replace("\\", "\\\\")
    return ["'" + escaped.replace("'", "''") + "'", '"' + escaped.replace('"', '\\"') + '"']


@st.composite
def _literal(draw: st.DrawFn, domain: Domain, position: int) -> tuple[str, int | str | None]:
    """A literal of a key's type, as text and as SQLite's value."""
    key_type, usual = domain.key_types[position], st.sampled_from(domain.spellings[position])
    text = draw(usual | usual | usual | st.sampled_from(SPELLINGS[key_type]))
    forms = _quoted(text)
    if key_type not in (*TEXT_TYPES, "date", "timestamp") and re.match("-?[0-9]", text):
        forms.append(text)
    if key_type in ("date", "timestamp"):
        forms.append(f"{key_type} '{text}'")
    return draw(st.sampled_from(forms)), comparable(key_type, text)


@st.composite
def _comparison(draw: st.DrawFn, domain: Domain, position: int, operators: Sequence[str]) -> Filter:
    key, (literal, value) = draw(_written_key(position)), draw(_literal(domain, position))
    operator = draw(st.sampled_from(operators))
    sql = f"k{position} {operator} ?"
    if draw(st.sampled_from([False, False, True])):
        mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        return Filter(f"{literal} {mirrored} {key}", sql, (value,))
    return Filter(f"{key} {operator} {literal}", sql, (value,))


@st.composite
def _between(draw: st.DrawFn, domain: Domain, position: int, negations: Sequence[str] = ("",)) -> Filter:
    key, negation = draw(_written_key(position)), draw(st.sampled_from(negations))
    low, high = draw(_literal(domain, position)), draw(_literal(domain, position))
    return Filter(
        f"{key} {negation}between {low[0]} and {high[0]}", f"k{position} {negation}BETWEEN ? AND ?", (low[1], high[1])
    )


@st.composite
def _in(draw: st.DrawFn, domain: Domain, position: int) -> Filter:
    key, negation = draw(_written_key(position)), draw(st.sampled_from(["", "not "]))
    members = draw(st.lists(_literal(domain, position) | st.just(("null", None)), min_size=1, max_size=4))
    marks = ", ".join("?" * len(members))
    return Filter(
        f"{key} {negation}in ({', '.join(text for text, _ in members)})",
        f"k{position} {negation}IN ({marks})",
        tuple(value for _, value in members),
    )


@st.composite
def _like(draw: st.DrawFn, domain: Domain, position: int) -> Filter:
    if domain.key_types[position] not in TEXT_TYPES:
        return draw(_is_null(position))
    key, negation = draw(_written_key(position)), draw(st.sampled_from(["", "not "]))
    escape = draw(st.sampled_from(["\\", "\\", "!"]))
    pieces = ["a", "b", "ä", "😀", "x", " ", "%", "%", "_", f"{escape}%", escape * 2, "'"]
    pattern = "".join(draw(st.lists(st.sampled_from(pieces), max_size=4)))
    written = draw(st.sampled_from(_quoted(pattern)))
    behind = "" if escape == "\\" else f" escape '{escape}'"
    return Filter(
        f"{key} {negation}like {written}{behind}", f"k{position} {negation}LIKE ? ESCAPE ?", (pattern, escape)
    )


_CONSTANTS = [
    Filter(text, text) for text in ("1 = 1", "1 < 0", "'a' = 'b'", "-1 <= 1", "'10' < '9'", "true", "not false")
]


@st.composite
def _is_null(draw: st.DrawFn, position: int) -> Filter:
    test = draw(st.sampled_from(["is null", "IS NOT NULL"]))
    return Filter(f"{draw(_written_key(position))} {test}", f"k{position} {test}")


def _joined(parts: Sequence[Filter], word: str) -> Filter:
    return Filter(
        f" {word} ".join(f"({part.text})" for part in parts),
        f" {word} ".join(f"({part.sql})" for part in parts),
        tuple(parameter for part in parts for parameter in part.parameters),
    )


def _negated(part: Filter) -> Filter:
    return Filter(f"not ({part.text})", f"NOT ({part.sql})", part.parameters)


def _leaves(domain: Domain) -> st.SearchStrategy[Filter]:
    def leaf(position: int) -> st.SearchStrategy[Filter]:
        return st.one_of(
            _comparison(domain, position, ["=", "<", "<=", ">", ">=", "<>", "!="]),
            _between(domain, position, ["", "not "]),
            _in(domain, position),
            _like(domain, position),
            _is_null(position),
        )

    return st.sampled_from([*range(len(domain.key_types))] * 5 + [None]).flatmap(
        lambda position: st.sampled_from(_CONSTANTS) if position is None else leaf(position)
    )


def _nested(domain: Domain) -> st.SearchStrategy[Filter]:
    """Any conditions, combined by AND, OR and NOT."""
    return st.recursive(
        _leaves(domain),
        lambda inner: (
            st.builds(_joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "OR"]))
            | inner.map(_negated)
        ),
        max_leaves=4,
    )


@st.composite
def _indexable(draw: st.DrawFn, domain: Domain, index: Sequence[int]) -> Filter:
    """Values for the first keys of an index, some of which may be missing, and optionally another condition."""
    equal_count = draw(st.integers(0, min(3, len(index))))
    skipped = draw(st.just(frozenset()) | st.frozensets(st.integers(0, equal_count), max_size=equal_count))
    parts = [
        draw(_some_values(domain, position)) for at, position in enumerate(index[:equal_count]) if at not in skipped
    ]
    if equal_count < len(index):
        position = index[equal_count]
        ranges = _comparison(domain, position, ["<", "<=", ">", ">="]) | _between(domain, position)
        parts += draw(st.lists(ranges | _like(domain, position), min_size=not parts, max_size=2))
    elif not parts:
        parts = [draw(_some_values(domain, index[-1]))]
    parts += draw(st.lists(_leaves(domain) | _nested(domain), max_size=draw(st.sampled_from([0, 0, 1]))))
    return _joined(draw(st.permutations(parts)), "AND")


def _some_values(domain: Domain, position: int) -> st.SearchStrategy[Filter]:
    """A condition on one key: one value, a few values, or all except a few."""
    equal = _comparison(domain, position, ["="])
    few = st.lists(equal, min_size=2, max_size=3).map(lambda parts: _joined(parts, "or"))
    return st.one_of(equal, equal, few, _in(domain, position), few.map(_negated), _is_null(position))


@st.composite
def cases(draw: st.DrawFn) -> Given:
    """A table with its partitions and filters."""
    key_types = tuple(draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4)))
    choices = [draw(st.sampled_from([SPELLINGS[kind], *([LONG] if kind == "string" else [])])) for kind in key_types]
    spellings = [draw(st.lists(st.sampled_from(texts), min_size=2, max_size=4)) for texts in choices]
    domain = Domain(key_types, tuple(map(tuple, spellings)))
    subset = st.permutations(range(len(key_types))).flatmap(
        lambda order: st.integers(1, len(order)).map(lambda length: tuple(order[:length]))
    )
    indexes = draw(st.lists(subset, min_size=draw(st.sampled_from([0, 1, 1, 1, 1])), max_size=3, unique=True))
    is_clean = draw(st.sampled_from([True, True, True, False]))

    def texts(position: int) -> st.SearchStrategy[str | None]:
        usual = st.sampled_from(domain.spellings[position])
        some = usual | usual | usual | st.sampled_from([None, NULL_VALUE])
        return some if is_clean else some | st.sampled_from(UNFIT[key_types[position]])

    rows: st.SearchStrategy[tuple[str | None, ...]] = st.tuples(*map(texts, range(len(key_types))))
    if not is_clean and len(key_types) > 1:
        rows = rows | rows | rows.map(lambda row: row[:-1])
    asked = _nested(domain)
    if indexes:
        one = st.sampled_from(indexes).flatmap(lambda index: _indexable(domain, index))
        indexable = one | one | st.lists(one, min_size=2, max_size=2).map(lambda parts: _joined(parts, "or"))
        asked = indexable | indexable | indexable | asked
    return Given(
        key_types,
        tuple(indexes),
        tuple(draw(st.lists(rows, min_size=draw(st.sampled_from([0, 8, 16])), max_size=30))),
        tuple(draw(st.lists(asked, min_size=20, max_size=24))),
    )
