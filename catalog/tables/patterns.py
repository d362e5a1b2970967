"""Tables that are meant by their names, by patterns, or as all of a database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from catalog.errors import WrongFieldError
from catalog.model import Table
from catalog.model.identifiers import TableName


def is_pattern(text: str) -> bool:
    """Say whether a text means several tables: `*` stands for any characters but a dot, `?` for one."""
    return "*" in text or "?" in text


def require_meant(table: str, wanted: Sequence[str], field: str) -> None:
    """Make sure that what was written means a table.

    Args:
        table: `database.table`, as the catalog writes it.
        wanted: As for `matching_tables`.
        field: The field of the form that says so.

    Raises:
        InvalidIdentifierError: A name cannot be one.
        WrongFieldError: The table is not meant.
    """
    named = {str(TableName.parse(text.strip())) for text in wanted if not is_pattern(text)}
    patterns = [_compiled(text) for text in wanted if is_pattern(text)]
    is_meant = table in named or any(pattern.fullmatch(table) for pattern in patterns)
    if not is_meant or str(TableName.parse(table)) != table:
        raise WrongFieldError(field, f"{', '.join(wanted)} does not mean {table}; clear the task before")


def matching_tables(tables: Iterable[Table], wanted: Sequence[str], field: str) -> dict[str, bool]:
    """Return the tables that are meant, each once and in the order of what was written.

    Args:
        tables: All that there are.
        wanted: `database.table`; or `database.*`, `database.sales_*`.
        field: The field of the form that says so.

    Returns:
        `database.table` → whether it was named itself; such a one need not exist.

    Raises:
        WrongFieldError: A name cannot be one, or no table is like a pattern.
    """
    names = [table.full_name for table in tables]
    found: dict[str, bool] = {}
    for text in wanted:
        if not is_pattern(text):
            found[str(TableName.parse(text.strip()))] = True
            continue
        pattern = _compiled(text)
        matched = [name for name in names if pattern.fullmatch(name)]
        if not matched:
            raise WrongFieldError(field, f"no table is like {text!r}; there are {_some(names)}")
        for name in matched:
            found.setdefault(name, False)
    return found


def _compiled(text: str) -> re.Pattern[str]:
    escaped = re.escape(text.strip().lower())
    return re.compile(escaped.replace(r"\*", r"[^.]*").replace(r"\?", r"[^.]"))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "") if names else "none"
