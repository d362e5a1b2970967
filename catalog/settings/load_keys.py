"""Partition keys of a load: their types, and the expressions by which they are computed from columns of the files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from catalog.errors import CatalogError, InvalidConfigurationError
from catalog.model.identifiers import normalise_identifier
from catalog.settings.entry_fields import check_key_type
from catalog.settings.problems import Problems
from catalog.settings.spark_functions import check_expression, functions_of, outer_function, words_of
from catalog.types.key_types import parse_key_type

_EXAMPLE = "{type: date, from: to_date(ordered_at)}"
_FIELDS = ("type", "from")
_KEY = re.compile(r"([^\s:]+)(?:\s*:\s*|\s+)(.+)", re.DOTALL)
_FROM = re.compile(r"(.+?)\s+from\s+(.+)", re.IGNORECASE | re.DOTALL)
_CAST = re.compile(r".*\sas\s+([a-z]+\s*(?:\([\d\s,]+\))?)\s*\)", re.IGNORECASE | re.DOTALL)

_TYPES = {
    "date": "date date_add date_sub dateadd last_day make_date next_day to_date trunc try_to_date",
    "timestamp": "date_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds to_timestamp "
    "to_utc_timestamp from_utc_timestamp try_to_timestamp",
    "int": "ascii crc32 day dayofmonth dayofweek dayofyear hour instr int length minute month quarter second weekday "
    "weekofyear year",
    "bigint": "bigint unix_millis unix_seconds unix_timestamp xxhash64",
    "string": "btrim concat concat_ws date_format from_unixtime initcap lcase left lower lpad ltrim md5 regexp_extract "
    "regexp_replace regexp_substr repeat replace right rpad rtrim split_part string substr substring substring_index "
    "translate trim ucase upper",
    "double": "double",
    "boolean": "boolean",
}
_TYPE_OF = {function: type_text for type_text, functions in _TYPES.items() for function in functions.split()}
"""Function → the type of its values, if that does not depend on its arguments."""

_CLOCK = frozenset({"current_date", "current_time", "current_timestamp", "current_user", "localtimestamp"})
RANDOM_FUNCTIONS = frozenset(
    {
        *("input_file_block_length", "input_file_block_start", "input_file_name", "monotonically_increasing_id"),
        *("rand", "randn", "random", "randstr", "shuffle", "spark_partition_id", "uniform", "uuid"),
    }
)
"""Functions whose values differ from one pass over the same rows to the next."""

CHANGING_FUNCTIONS = _CLOCK | RANDOM_FUNCTIONS | {"curdate", "now", "session_user", "user"}
"""Functions whose values differ from one pass over the files, run or user to the next.

Those of `_CLOCK` need no brackets. Neither do `user` and `session_user`, but these names may well be columns of the
files; so the load looks for them, when it knows the columns.
"""

_NOW = re.compile(r"\bunix_timestamp\s*\(\s*\)", re.IGNORECASE)
"""A call that gives the present time, because it has no argument."""


def read_keys(place: str, entry: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the partition keys of an entry with their types, and those with an expression with it.

    A key is written as a type (`date`), as an expression whose type is known by its function (`to_date(ordered_at)`),
    or as a mapping: `{type: date, from: to_date(ordered_at)}`.

    Raises:
        InvalidConfigurationError: The field is no mapping; or a name, a type or an expression is invalid.
    """
    value = entry.get("keys") or {}
    if not isinstance(value, Mapping):
        raise InvalidConfigurationError(f"{place}: keys is {value!r}, expected a mapping such as {{name: value}}")
    # Extensions of Spark have functions of their own.
    spark = entry.get("spark")
    knows_functions = not (isinstance(spark, Mapping) and "spark.sql.extensions" in spark)
    types: dict[str, str] = {}
    expressions: dict[str, str] = {}
    problems = Problems()
    for written, given in value.items():
        with problems:
            name = normalise_identifier(str(written), "column")
            if name in types:
                raise InvalidConfigurationError(f"keys has {name} twice; remove one")
            types[name], expression = _type_and_expression(f"keys.{name}", given, knows_functions=knows_functions)
            if expression is not None:
                expressions[name] = expression
            types[name] = check_key_type(f"keys.{name}", types[name])
    problems.report()
    return types, expressions


def written_keys(types: Mapping[str, str], expressions: Mapping[str, str]) -> dict[str, Any]:
    """Return keys as `read_keys` reads them."""
    return {
        name: {"type": text, "from": expressions[name]} if name in expressions else text for name, text in types.items()
    }


def key_of_text(place: str, text: str) -> tuple[str, Any]:
    """Return the name of a key of a form, and the key as `read_keys` reads it.

    Args:
        text: `day date`, `day: date` as in YAML, `day to_date(ordered_at)` or `day date from to_date(ordered_at)`.

    Raises:
        InvalidConfigurationError: There is only a name.
    """
    written = _KEY.fullmatch(text.strip())
    if written is None:
        raise InvalidConfigurationError(f"{place}: key {text!r} has no type; write it as a name and a type: day date")
    name, rest = written.groups()
    match = _FROM.fullmatch(rest)
    return name, {"type": match[1], "from": match[2]} if match and _is_type(match[1]) else rest


def _type_and_expression(place: str, given: Any, *, knows_functions: bool) -> tuple[str, str | None]:
    if not isinstance(given, Mapping):
        text = str(given)
        if _is_type(text) or outer_function(text) is None:
            return text, None
        return _type_of(place, text, knows_functions=knows_functions), text
    if unknown := sorted(map(str, set(given) - set(_FIELDS))):
        raise InvalidConfigurationError(
            f"{place} has unknown field {', '.join(unknown)}; its fields are {', '.join(_FIELDS)}, such as {_EXAMPLE}"
        )
    expression, written_type = given.get("from"), given.get("type")
    if expression is None:
        if written_type is None:
            raise InvalidConfigurationError(f"{place} has neither a type nor an expression; write {_EXAMPLE}")
        return str(written_type), None
    if written_type is None:
        return _type_of(place, expression, knows_functions=knows_functions), str(expression)
    _check(f"{place}.from", expression, knows_functions=knows_functions)
    return str(written_type), str(expression)


def _type_of(place: str, expression: Any, *, knows_functions: bool) -> str:
    """Return the type of an expression's values.

    Raises:
        InvalidConfigurationError: The expression is invalid, or only Spark could tell its type.
    """
    _check(place, expression, knows_functions=knows_functions)
    text = str(expression)
    function = outer_function(text) or ""
    if function in ("cast", "try_cast") and (match := _CAST.fullmatch(text.strip())) and _is_type(match[1]):
        return re.sub(r"\s", "", match[1].lower())
    if function not in _TYPE_OF:
        raise InvalidConfigurationError(
            f"{place} is {text!r}, which is no type, and the type of whose values is unknown; write the type, too, as "
            f"in {_EXAMPLE}"
        )
    return _TYPE_OF[function]


def _check(place: str, expression: Any, *, knows_functions: bool) -> None:
    """Check that a value can be the expression of a key, as far as that is known without Spark.

    Raises:
        InvalidConfigurationError: It cannot.
    """
    check_expression(place, expression, knows_functions=knows_functions)
    words = words_of(str(expression))
    if "select" in words:
        raise InvalidConfigurationError(
            f"{place} is {expression!r}, which has a subquery; a key is computed from the columns of its own row"
        )
    changing = words & _CLOCK | functions_of(str(expression)) & CHANGING_FUNCTIONS
    if _NOW.search(str(expression)):
        changing |= {"unix_timestamp"}
    if changing:
        raise InvalidConfigurationError(
            f"{place} is {expression!r}, but the function {min(changing)} differs from run to run; compute the key "
            "from columns of the files"
        )


def _is_type(text: str) -> bool:
    try:
        parse_key_type(text)
    except CatalogError:
        return False
    return True
