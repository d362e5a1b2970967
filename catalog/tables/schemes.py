"""Construction of partition schemes from TBLPROPERTIES of CREATE TABLE and from stored JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog.errors import InvalidSchemeError
from catalog.model import PARTITION_ID, Column, FileFormat
from catalog.model.identifiers import normalise_identifier
from catalog.schemes.hashing import HashScheme
from catalog.schemes.lists import ListScheme
from catalog.schemes.model import Scheme, SchemeType
from catalog.schemes.ranges import IntervalScheme, RangeScheme
from catalog.schemes.texts import parse_groups, split_list
from catalog.types.column_types import parse_column_type

PARTITION_FOLDER = "calve_partition_id"
"""The column that names the folders of data files, for instance `calve_partition_id=7`.

The catalog, not the folder, determines the partition of a file: a rebalance may assign the file to another partition.
"""

SCHEME_PROPERTIES = (
    "PARTITION_TYPE",
    "PARTITION_NUM",
    "NUM_PARTITIONS",
    "RANGE_INFO",
    "LIST_INFO",
    "INTERVAL",
    "INTERVAL_START",
    "SORT_COLUMNS",
)
"""The TBLPROPERTIES that define a scheme, in any case; all others are ordinary table properties."""


def scheme_from_properties(column: Column, properties: Mapping[str, str]) -> Scheme:
    """Return the scheme that TBLPROPERTIES describe.

    Args:
        column: The partition column.
        properties: TBLPROPERTIES with names in any case; those not in `SCHEME_PROPERTIES` are ignored.

    Raises:
        InvalidSchemeError: A property is missing, superfluous or malformed; subclasses tell the reason.
    """
    given = {name.upper(): text for name, text in properties.items() if name.upper() in SCHEME_PROPERTIES}
    kind = given.pop("PARTITION_TYPE", None)
    if kind is None:
        raise InvalidSchemeError("PARTITION_TYPE is missing; set it to HASH, RANGE, LIST or RANGE_INTERVAL")
    make = _MAKERS.get(kind.strip().upper())
    if make is None:
        raise InvalidSchemeError(f"unknown PARTITION_TYPE {kind!r}; use one of {', '.join(_MAKERS)}")
    sort_columns = _names(given.pop("SORT_COLUMNS", ""))
    scheme = make(column.name, column.type, sort_columns, given)
    if given:
        raise InvalidSchemeError(
            f"PARTITION_TYPE {kind.strip().upper()} does not use {', '.join(sorted(given))}; remove it"
        )
    return scheme


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(normalise_identifier(name, "column") for name in text.split(",") if name.strip()))


def _needed(given: dict[str, str], name: str) -> str:
    text = given.pop(name, "")
    if not text.strip():
        raise InvalidSchemeError(f"{name} is missing or empty; the partition type needs it")
    return text


def _present(given: dict[str, str], name: str) -> str:
    """Return a property that may be empty, because a table whose last range was dropped has no bounds."""
    if name not in given:
        raise InvalidSchemeError(f"{name} is missing; the partition type needs it")
    return given.pop(name)


def _hash(column: str, column_type: str, sort_columns: tuple[str, ...], given: dict[str, str]) -> Scheme:
    names = [name for name in ("PARTITION_NUM", "NUM_PARTITIONS") if name in given]
    if len(names) > 1:
        raise InvalidSchemeError("PARTITION_NUM and NUM_PARTITIONS mean the same; set one of them")
    name = names[0] if names else "PARTITION_NUM"
    text = _needed(given, name).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidSchemeError(f"{name} is {text!r}, expected a whole number such as 9")
    return HashScheme(column, column_type, sort_columns, int(text))


def _range(column: str, column_type: str, sort_columns: tuple[str, ...], given: dict[str, str]) -> Scheme:
    bounds = _bounds(_present(given, "RANGE_INFO"))
    scheme = RangeScheme(column, column_type, sort_columns, len(bounds) + 1, bounds)
    scheme.check("RANGE_INFO")
    return scheme


def _interval(column: str, column_type: str, sort_columns: tuple[str, ...], given: dict[str, str]) -> Scheme:
    bounds = _bounds(_needed(given, "RANGE_INFO"))
    interval = _needed(given, "INTERVAL").strip()
    anchor = given.pop("INTERVAL_START", "").strip() or bounds[-1][1]
    scheme = IntervalScheme(column, column_type, sort_columns, len(bounds) + 1, bounds, interval, anchor)
    scheme.check("RANGE_INFO")
    return scheme


def _bounds(text: str) -> tuple[tuple[int, str], ...]:
    return tuple(enumerate(split_list(text, "RANGE_INFO"), 1)) if text.strip() else ()


def _list(column: str, column_type: str, sort_columns: tuple[str, ...], given: dict[str, str]) -> Scheme:
    text = _present(given, "LIST_INFO")
    groups = tuple(enumerate(parse_groups(text, "LIST_INFO"), 1)) if text.strip() else ()
    scheme = ListScheme(column, column_type, sort_columns, len(groups) + 1, groups)
    scheme.check("LIST_INFO")
    return scheme


_MAKERS: Mapping[str, Callable[[str, str, tuple[str, ...], dict[str, str]], Scheme]] = {
    SchemeType.HASH: _hash,
    SchemeType.RANGE: _range,
    SchemeType.LIST: _list,
    SchemeType.RANGE_INTERVAL: _interval,
}


def scheme_from_json(stored: Mapping[str, Any]) -> Scheme:
    """Return the scheme that `Scheme.as_json` has stored."""
    fields = {name: value for name, value in stored.items() if name != "type"}
    fields["sort_columns"] = tuple(fields["sort_columns"])
    if "bounds" in fields:
        fields["bounds"] = tuple((partition_id, text) for partition_id, text in fields["bounds"])
    if "groups" in fields:
        fields["groups"] = tuple((partition_id, tuple(texts)) for partition_id, texts in fields["groups"])
    return _CLASSES[SchemeType(stored["type"])](**fields)


_CLASSES: Mapping[SchemeType, type[Scheme]] = {
    scheme.type: scheme for scheme in (HashScheme, RangeScheme, IntervalScheme, ListScheme)
}


def check_table_of_scheme(
    scheme: Scheme, columns: Sequence[Column], partition_keys: Sequence[Column], file_format: str
) -> None:
    """Check that a table can have a partition scheme.

    Raises:
        InvalidSchemeError: The table lacks a column of the scheme, values of a column cannot be compared, it has
            partition keys, a column has a reserved name, or its format is not Parquet.
    """
    if partition_keys:
        raise InvalidSchemeError(
            f"a table cannot have both partition keys and a partition scheme; make {partition_keys[0].name} a column"
        )
    if file_format.lower() != FileFormat.PARQUET:
        raise InvalidSchemeError(f"a table with a partition scheme must be stored as Parquet, not {file_format}")
    if any(column.name in (PARTITION_ID, PARTITION_FOLDER) for column in columns):
        raise InvalidSchemeError(
            f"the column names {PARTITION_ID} and {PARTITION_FOLDER} are reserved; choose another name"
        )
    types = {column.name: column.type for column in columns}
    for name in (scheme.column, *scheme.sort_columns):
        if name not in types:
            raise InvalidSchemeError(
                f"SORT_COLUMNS names {name}, which is not a column of the table; its columns are {', '.join(types)}"
            )
        if parse_column_type(types[name]) is None:
            raise InvalidSchemeError(f"column {name} has type {types[name]}, whose values do not compare")
