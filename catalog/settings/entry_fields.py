"""Reading the fields of an entry in the list of tables that have several members; all wrong members are named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from catalog.errors import CatalogError, InvalidConfigurationError
from catalog.model import MAXIMUM_INDEXES
from catalog.model.identifiers import normalise_identifier
from catalog.settings.problems import Problems
from catalog.settings.quality_rules import QualityRules
from catalog.settings.spark_functions import check_expression
from catalog.types.column_types import named_column_type, parse_column_type
from catalog.types.key_types import parse_key_type


def check_quality(quality: Any, keys: Collection[str], entry: Mapping[str, Any]) -> None:
    """Check the quality rules of an entry, and that Spark can have the functions in their expressions.

    Raises:
        InvalidConfigurationError: A rule is invalid.
    """
    problems = Problems()
    with problems:
        QualityRules.from_config(quality, keys=tuple(keys))
    agree = quality.get("agree") if isinstance(quality, dict) else None
    # Extensions of Spark have functions of their own.
    spark = entry.get("spark")
    is_extended = isinstance(spark, Mapping) and "spark.sql.extensions" in spark
    for key, expression in agree.items() if isinstance(agree, dict) else ():
        with problems:
            check_expression(f"quality.agree.{key}", expression, knows_functions=not is_extended)
    problems.report()


def read_types(
    place: str, entry: Mapping[str, Any], field_name: str, check: Callable[[str, str], str]
) -> dict[str, str]:
    """Return the types of a field's columns.

    Args:
        check: Returns the catalog's name of the type of one column, given as a place such as `columns.day` and a type.

    Raises:
        InvalidConfigurationError: The field is no mapping, or a name or a type is invalid.
    """
    types: dict[str, str] = {}
    problems = Problems()
    for written, text in read_texts(place, entry, field_name).items():
        with problems:
            name = normalise_identifier(written, "column")
            if name in types:
                raise InvalidConfigurationError(f"{field_name} has {name} twice; remove one")
            types[name] = check(f"{field_name}.{name}", text)
    problems.report()
    return types


def check_key_type(place: str, text: str) -> str:
    """Return the catalog's name of a type that partition keys can have.

    Raises:
        InvalidConfigurationError: They cannot.
    """
    try:
        return str(parse_key_type(text))
    except CatalogError as error:
        raise InvalidConfigurationError(f"{place}: {error}") from None


def check_column_type(place: str, text: str) -> str:
    """Return the catalog's name of a type that columns of data files can have.

    Raises:
        InvalidConfigurationError: They cannot.
    """
    name = place.partition(".")[2]
    try:
        named = named_column_type(name, text.lower())
        parse_column_type(named)
        return named
    except CatalogError as error:
        raise InvalidConfigurationError(f"{place}: {str(error).removeprefix(f'column {name}: ')}") from None


def read_texts(place: str, entry: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return a field's mapping of strings; other values are written as YAML writes them.

    Raises:
        InvalidConfigurationError: It is no mapping.
    """
    value = entry.get(name) or {}
    if not isinstance(value, dict):
        raise InvalidConfigurationError(f"{place}: {name} is {value!r}, expected a mapping such as {{name: value}}")
    return {str(key): _text(text) for key, text in value.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_indexes(place: str, entry: Mapping[str, Any], keys: Collection[str]) -> dict[str, list[str]]:
    """Return the partition indexes of an entry with their keys.

    Args:
        keys: The entry's partition keys; empty when unknown, which leaves key names unchecked.

    Raises:
        InvalidConfigurationError: There are too many, or the name or the keys of one are invalid.
    """
    indexes = entry.get("indexes") or {}
    if not isinstance(indexes, dict) or not all(isinstance(index_keys, list) for index_keys in indexes.values()):
        raise InvalidConfigurationError(
            f"{place}: indexes is {indexes!r}, expected a mapping such as {{by_day: [year, day]}}"
        )
    parsed: dict[str, list[str]] = {}
    problems = Problems()
    for written, index_keys in indexes.items():
        with problems:
            name = normalise_identifier(str(written), "partition index")
            columns = [normalise_identifier(str(key), "column") for key in index_keys]
            _check_index(name, columns, parsed, keys)
            parsed[name] = columns
    with problems:
        if len(indexes) > MAXIMUM_INDEXES:
            names = ", ".join(map(str, indexes))
            raise InvalidConfigurationError(
                f"indexes has {len(indexes)} partition indexes ({names}); a table has at most {MAXIMUM_INDEXES}, so "
                "remove the others"
            )
    problems.report()
    return parsed


def _check_index(name: str, columns: list[str], others: Mapping[str, list[str]], keys: Collection[str]) -> None:
    unknown = ", ".join(repr(key) for key in columns if key not in keys)
    if unknown and keys:
        raise InvalidConfigurationError(
            f"index {name} has {unknown}, not a partition key; the keys are {', '.join(keys)}"
        )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidConfigurationError(f"index {name} is on {columns!r}; name one or more keys, each once")
    if name in others:
        raise InvalidConfigurationError(f"indexes has {name} twice; remove one")
    for other, other_columns in others.items():
        if columns == other_columns:
            raise InvalidConfigurationError(
                f"index {name} is on the same keys as {other}, {', '.join(columns)}; remove one of them"
            )
