"""Selection of tables by names and patterns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from catalog.errors import WrongFieldError
from catalog.errors.base import first_of
from catalog.expressions.evaluation import joined_by_any
from catalog.model import Table
from catalog.model.identifiers import TableName


def is_pattern(text: str) -> bool:
    """Return whether a string is a pattern: `*` matches any characters except a dot, `?` exactly one."""
    return "*" in text or "?" in text


def require_meant(table: str, wanted: Sequence[str], field: str) -> None:
    """Check that a form's names and patterns select a table.

    Args:
        table: `database.table`, as the catalog writes it.
        wanted: Names and patterns, as for `matching_tables`.
        field: The form's field that contains them.

    Raises:
        InvalidIdentifierError: A name is not valid.
        WrongFieldError: They do not select the table.
    """
    named = {str(TableName.parse(text.strip())) for text in wanted if not is_pattern(text)}
    patterns = [_compiled(text) for text in wanted if is_pattern(text)]
    is_meant = table in named or any(pattern.fullmatch(table) for pattern in patterns)
    if not is_meant or str(TableName.parse(table)) != table:
        raise WrongFieldError(field, f"{', '.join(wanted)} does not select {table}; clear the task that planned it")


def matching_tables(tables: Iterable[Table], wanted: Sequence[str], field: str) -> dict[str, bool]:
    """Return the tables that a form's names and patterns select, each once and in the order of the form.

    Args:
        tables: All existing tables.
        wanted: Names and patterns: `database.table`, `database.*`, `database.sales_*`.
        field: The form's field that contains them.

    Returns:
        `database.table` → whether the form names it; a named table need not exist.

    Raises:
        InvalidIdentifierError: A name is not valid.
        WrongFieldError: No table matches a pattern.
    """
    names = [table.full_name for table in tables]
    selected: dict[str, bool] = {}
    for text in wanted:
        if not is_pattern(text):
            selected[str(TableName.parse(text.strip()))] = True
            continue
        pattern = _compiled(text)
        matches = [name for name in names if pattern.fullmatch(name)]
        if not matches:
            raise WrongFieldError(field, f"no table matches {text!r}; existing tables: {first_of(names, 5) or 'none'}")
        for name in matches:
            selected.setdefault(name, False)
    return selected


def hive_pattern(text: str | None) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches a pattern of Hive's SHOW TABLES, ignoring case.

    Args:
        text: `*` or `%` matches any characters, and `|` separates alternatives; None matches all names.
    """
    if text is None:
        return lambda _name: True
    alternatives = (part.strip().lower().replace("%", "*").split("*") for part in text.split("|"))
    pattern = re.compile("|".join(joined_by_any([*map(re.escape, runs)]) for runs in alternatives), re.DOTALL)
    return lambda name: pattern.fullmatch(name) is not None


def _compiled(text: str) -> re.Pattern[str]:
    runs = [re.escape(run).replace(r"\?", "[^.]") for run in text.strip().lower().split("*")]
    return re.compile(joined_by_any(runs, "[^.]"))
