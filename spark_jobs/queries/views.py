"""Expansion of views in queries, and qualification of table names without a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from catalog import Catalog, Table
from catalog.errors import InvalidTableError
from catalog.statements.model import MergeRows
from catalog.statements.query_tables import named_table, nodes_of_text, start_of
from catalog.statements.terms import TableReference
from catalog.types.literals import quoted_name
from spark_jobs.queries.table_names import end_of
from spark_jobs.reading.paths import quoted

MAXIMUM_DEPTH = 50
"""Maximum nesting depth of views."""

MAXIMUM_LENGTH = 1_000_000
"""Maximum number of characters that views add to a SELECT: of views that name the next one twice, each doubles them."""

_Known = dict[tuple[str, int], str]
"""Name and depth of a view → its SELECT."""


def with_views(catalog: Catalog, sql: str, database: str) -> str:
    """Return a SELECT with views replaced by their queries, and with a database in all table names.

    The rest of the text is unchanged, and so is a text that is not a single SELECT. In a view, a table name without a
    database belongs to the view's database.

    Args:
        database: The database of table names without one.

    Raises:
        InvalidTableError: A view refers to itself, or views are nested too deeply, or are too long together.
    """
    return _expanded(catalog, sql, database, (), {})


def expression_with_views(catalog: Catalog, expression: str, database: str) -> str:
    """Return an expression whose subqueries are changed as by `with_views`."""
    before, after = "SELECT (\n", "\n)"
    return with_views(catalog, f"{before}{expression}{after}", database).removeprefix(before).removesuffix(after)


def merge_with_views(catalog: Catalog, statement: MergeRows, table: Table, database: str) -> MergeRows:
    """Return a MERGE into a table, with its source and its expressions changed as by `with_views`."""

    def expanded(expression: str) -> str:
        return expression_with_views(catalog, expression, database)

    source = f"SELECT * FROM {statement.source} AS {quoted(statement.source_alias)}"
    source = f"({with_views(catalog, source, database)}\n)"
    clauses = [
        replace(
            clause,
            condition=None if clause.condition is None else expanded(clause.condition),
            values=_mapped(clause.values, expanded),
        )
        for clause in statement.clauses
    ]
    return replace(
        statement,
        table=TableReference(table.database, table.name),
        source=source,
        condition=expanded(statement.condition),
        clauses=clauses,
    )


def _mapped(
    values: Mapping[str, str] | Sequence[str] | None, change: Callable[[str], str]
) -> Mapping[str, str] | Sequence[str] | None:
    """Return the values of a clause of MERGE with changed expressions."""
    if isinstance(values, Mapping):
        return {name: change(expression) for name, expression in values.items()}
    return values and [change(expression) for expression in values]


def _expanded(catalog: Catalog, sql: str, database: str, outer: tuple[str, ...], known: _Known) -> str:
    edits, length = list[tuple[int, int, str]](), 0
    for node in nodes_of_text(sql):
        if (table := named_table(catalog, node, database)) is None:
            continue
        for start, end, text in _edit(catalog, node, table, outer, known):
            edits.append((start, end, text))
            length += len(text) if table.is_view else 0
            if length > MAXIMUM_LENGTH:
                raise InvalidTableError(
                    f"{f'view {outer[0]}' if outer else 'the query'} has more than {MAXIMUM_LENGTH:,} characters with "
                    f"the views in it, such as {table.full_name}; name fewer views that name others repeatedly"
                )
    for start, end, text in sorted(edits, reverse=True):
        sql = f"{sql[:start]}{text}{sql[end:]}"
    return sql


def _edit(
    catalog: Catalog, node: exp.Table, table: Table, outer: tuple[str, ...], known: _Known
) -> Iterator[tuple[int, int, str]]:
    start, end = start_of(node.parts[0]), end_of(node.parts[-1])
    if table.is_view:
        alias = "" if node.alias else f" AS {quoted_name(table.name)}"
        # The line break ends a comment at the end of the view's text.
        yield start, end, f"({_query_of(catalog, table, outer, known)}\n){alias}"
    elif not node.db:
        yield start, start, f"{quoted_name(table.database)}."


def _query_of(catalog: Catalog, view: Table, outer: tuple[str, ...], known: _Known) -> str:
    """Return the SELECT of a view with the view's column names."""
    if view.full_name in outer:
        raise InvalidTableError(f"view {view.full_name} refers to itself: {' → '.join((*outer, view.full_name))}")
    if len(outer) >= MAXIMUM_DEPTH:
        raise InvalidTableError(f"view {outer[0]} nests more than {MAXIMUM_DEPTH} views")
    key = view.full_name, len(outer)
    if key not in known:
        query = _expanded(catalog, view.view_text or "", view.database, (*outer, view.full_name), known)
        names = ", ".join(quoted_name(column.name) for column in view.columns)
        known[key] = f"SELECT * FROM ({query}\n) AS calve_view ({names})" if view.columns else query
    return known[key]
