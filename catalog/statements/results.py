"""Results of statements, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from catalog.errors import CatalogError
from catalog.statements.splitting import StatementText

Cell: TypeAlias = "str | int | float | bool | list[Cell] | dict[str, Cell] | None"
"""A JSON value of a result: dates, times and decimals as strings, bytes in hexadecimal digits."""


@dataclass(frozen=True)
class StatementResult:
    """The result of a statement; it has no columns if the statement returns no rows.

    Attributes:
        brief_columns: The number of columns in the short text form; None for all.
        text: The text form, if it differs from a table of the rows.
        is_data: The rows come from a table, so null is printed as NULL.
    """

    columns: tuple[str, ...] = ()
    rows: Sequence[Sequence[Cell]] = ()
    brief_columns: int | None = None
    text: str | None = None
    is_data: bool = False


DONE = StatementResult()
"""The result of a statement that returns nothing."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a statement: a result or an error.

    Attributes:
        answer: The result; None after an error.
        error: The error, with a `position` in the statement's text; None after success.
    """

    statement: StatementText
    answer: StatementResult | None = None
    error: CatalogError | None = None

    def as_dict(self, *, most_rows: int | None = None) -> dict[str, Cell]:
        """Return the outcome as JSON values.

        Args:
            most_rows: The maximum number of rows; `rows_left_out` counts the others. None for all.
        """
        if self.error is not None:
            return {
                "statement": self.statement.text,
                "ok": False,
                "error": type(self.error).__name__,
                "message": str(self.error),
                "position": self.error.position,
            }
        answer = self.answer or DONE
        fields: dict[str, Cell] = {
            "statement": self.statement.text,
            "ok": True,
            "columns": list(answer.columns),
            "rows": [list(row) for row in answer.rows[:most_rows]],
        }
        if most_rows is not None and len(answer.rows) > most_rows:
            fields["rows_left_out"] = len(answer.rows) - most_rows
        return fields

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)


def as_text(answer: StatementResult, *, is_long: bool = False) -> list[str]:
    """Return the lines of a result's text form: plain values for one column, else a table with headings."""
    if answer.text is not None:
        return answer.text.splitlines()
    shown = len(answer.columns) if is_long or answer.brief_columns is None else answer.brief_columns
    null = "NULL" if answer.is_data else ""
    rows = [[_text(cell, null) for cell in row[:shown]] for row in answer.rows]
    if shown == 0:
        return []
    if shown == 1:
        return [row[0] for row in rows]
    table = [list(answer.columns[:shown]), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    numeric = [
        bool(answer.rows) and all(isinstance(row[n], int | float | None) for row in answer.rows) for n in range(shown)
    ]
    return [
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in table
    ]


def _text(cell: Cell, null: str) -> str:
    if cell is None:
        return null
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False)
    return str(cell)
