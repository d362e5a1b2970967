"""The places in a SELECT that name a table, and the catalog's tables that they mean."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from catalog import Catalog, Table
from catalog.errors import InvalidIdentifierError, NotFoundError


def table_nodes(tree: exp.Query) -> list[exp.Table]:
    """Return the places that name a table, in the order of the text; those that name a common table expression not."""
    found: dict[int, exp.Table] = {}
    for scope in traverse_scope(tree):
        defined = {name.lower() for name in scope.cte_sources}
        for node in scope.tables:
            if isinstance(node.this, exp.Identifier) and (node.db or node.name.lower() not in defined):
                found[start_of(node.parts[0])] = node
    return [found[start] for start in sorted(found)]


def nodes_of_text(sql: str) -> list[exp.Table]:
    """Return the same for a text; none of one that is not a single SELECT."""
    try:
        [tree] = sqlglot.parse(sql, dialect="spark")
    except (SqlglotError, ValueError, RecursionError):
        return []
    return table_nodes(tree) if isinstance(tree, exp.Query) else []


def reads_iceberg(catalog: Catalog, sql: str, database: str) -> bool:
    """Return whether a text is a SELECT that names an Iceberg table.

    Args:
        database: Where tables without a database are.
    """
    tables = (named_table(catalog, node, database) for node in nodes_of_text(sql))
    return any(table is not None and table.is_iceberg for table in tables)


def named_table(catalog: Catalog, node: exp.Table, database: str) -> Table | None:
    """Return the table that a place names, of a metadata table its Iceberg table; None when the catalog has none.

    Args:
        database: Where tables without a database are.
    """
    try:
        if node.catalog:
            table = catalog.get_table(f"{node.catalog}.{node.db}")
            return table if table.is_iceberg else None
        return catalog.get_table(f"{node.db or database}.{node.name}")
    except (NotFoundError, InvalidIdentifierError):
        return None


def start_of(identifier: exp.Expr) -> int:
    """Return where in the text an identifier begins."""
    return int(identifier.meta["start"])


def end_of(identifier: exp.Expr) -> int:
    """Return where in the text an identifier ends, behind its last character."""
    return int(identifier.meta["end"]) + 1
