"""Results of statements, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

from catalog.errors import CatalogError
from catalog.statements.splitting import StatementText

Cell: TypeAlias = "str | int | float | bool | list[Cell] | dict[str, Cell] | None"
"""A JSON value of a result: dates, times and decimals as strings, bytes in hexadecimal digits."""


_MEASURED_ROWS = 1_000
"""The number of streamed rows that are held to determine the widths of columns."""


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


@dataclass(frozen=True)
class RowStream:
    """The rows of a SELECT, which are read while they are used; the error of a failed read is a `CatalogError`."""

    columns: tuple[str, ...]
    rows: Iterator[Sequence[Cell]]


DONE = StatementResult()
"""The result of a statement that returns nothing."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a statement: a result or an error.

    Attributes:
        answer: The result; None after an error.
        stream: The rows of a SELECT instead of its result, where they are streamed.
        error: The error, with a `position` in the statement's text; None after success.
    """

    statement: StatementText
    answer: StatementResult | None = None
    stream: RowStream | None = None
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
    rows = [row[:shown] for row in answer.rows]
    return list(_lines(answer.columns[:shown], rows, (), "NULL" if answer.is_data else ""))


def stream_as_text(stream: RowStream) -> Iterator[str]:
    """Yield the lines of the text form of streamed rows; the first rows determine the widths of the columns."""
    first = list(islice(stream.rows, _MEASURED_ROWS))
    return _lines(stream.columns, first, stream.rows, "NULL")


def _lines(
    columns: Sequence[str], first: Sequence[Sequence[Cell]], others: Iterable[Sequence[Cell]], null: str
) -> Iterator[str]:
    """Yield the lines of rows, of which the first determine the layout."""
    if len(columns) < 2:
        yield from (cell_as_text(row[0], null) for row in chain(first, others) if row)
        return
    texts = [[cell_as_text(cell, null) for cell in row] for row in first]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    numeric = [
        bool(first) and all(isinstance(row[n], int | float | None) for row in first) for n in range(len(columns))
    ]
    later = ([cell_as_text(cell, null) for cell in row] for row in others)
    for row in chain([list(columns)], texts, later):
        yield "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ).rstrip()


def cell_as_text(cell: Cell, null: str) -> str:
    """Return the text of a cell; arrays, maps and structs as JSON."""
    if cell is None:
        return null
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, list | dict):
        return json.dumps(cell, ensure_ascii=False)
    return str(cell)
