"""Table references of a SELECT, and the catalog tables that they name."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from catalog import Catalog, Table
from catalog.errors import InvalidIdentifierError, NotFoundError


def table_nodes(tree: exp.Query) -> list[exp.Table]:
    """Return the table references of a query in text order, without those of common table expressions."""
    nodes: dict[int, exp.Table] = {}
    for scope in traverse_scope(tree):
        defined = {name.lower() for name in scope.cte_sources}
        for node in scope.tables:
            if isinstance(node.this, exp.Identifier) and (node.db or node.name.lower() not in defined):
                nodes[start_of(node.parts[0])] = node
    return [nodes[start] for start in sorted(nodes)]


def nodes_of_text(sql: str) -> list[exp.Table]:
    """Return the table references of SQL text; empty if it is not a single SELECT."""
    try:
        [tree] = sqlglot.parse(sql, dialect="spark")
    except (SqlglotError, ValueError, RecursionError):
        return []
    return table_nodes(tree) if isinstance(tree, exp.Query) else []


def needs_packages(catalog: Catalog, sql: str, database: str) -> bool:
    """Return whether SQL text is a SELECT that refers to a table that Spark reads with packages (`Table`).

    Args:
        database: The database of table names without one.
    """
    nodes = nodes_of_text(sql)
    tables = ((node, named_table(catalog, node, database)) for node in nodes)
    return any(
        table is not None and (is_read_by_iceberg(node, table) or table.needs_packages) for node, table in tables
    )


def may_read(catalog: Catalog, sql: str, database: str, table: Table) -> bool:
    """Return whether SQL text may read a table: text without table references may be one that only Spark can parse.

    Args:
        database: The database of table names without one.
    """
    nodes = nodes_of_text(sql)
    found = (named_table(catalog, node, database) for node in nodes)
    return not nodes or any(one is not None and one.full_name == table.full_name for one in found)


def is_read_by_iceberg(node: exp.Table, table: Table) -> bool:
    """Return whether Iceberg always reads what a reference names: an Iceberg table, or a metadata table of one."""
    return table.is_iceberg or bool(node.catalog)


def named_table(catalog: Catalog, node: exp.Table, database: str) -> Table | None:
    """Return the catalog table of a reference, for a metadata table its Iceberg table; None if there is none.

    Args:
        database: The database of table names without one.
    """
    try:
        if node.catalog:
            table = catalog.get_table(f"{node.catalog}.{node.db}")
            return table if table.is_iceberg or table.is_published else None
        return catalog.get_table(f"{node.db or database}.{node.name}")
    except (NotFoundError, InvalidIdentifierError):
        return None


def start_of(identifier: exp.Expr) -> int:
    """Return the position of an identifier's first character."""
    return int(identifier.meta["start"])


def end_of(identifier: exp.Expr) -> int:
    """Return the position after an identifier's last character."""
    return int(identifier.meta["end"]) + 1
