"""Table references of SQL text, and the catalog tables that they name."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from catalog.catalog import Catalog
from catalog.errors import InvalidIdentifierError, NotFoundError, TableNotFoundError
from catalog.model import Table
from catalog.statements.model import (
    CreateTable,
    CreateView,
    ExplainSelect,
    InsertQuery,
    MigrationStatement,
    Select,
    Statement,
    TableStatement,
)

_MAY_BE_MISSING = (CreateTable, CreateView, MigrationStatement)
"""Statements about tables that they create; a migration looks for its tables in several catalogs."""


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


def require_tables(catalog: Catalog, sql: str, database: str) -> None:
    """Check that the tables of a SELECT exist, as far as it can be parsed without Spark.

    Args:
        database: The database of table names without one.

    Raises:
        TableNotFoundError: One does not; the error has its position in the text.
    """
    for node in nodes_of_text(sql):
        if node.name.lower() == "table" and not node.this.quoted:
            # `TABLE orders` is a query, which the parser takes for a table `TABLE` with an alias.
            continue
        # Spark has rules of its own about which common table expressions a subquery sees.
        common = {one.alias_or_name.lower() for one in node.root().find_all(exp.CTE)}
        if named_table(catalog, node, database) is None and (node.db or node.name.lower() not in common):
            name = ".".join(part.name for part in node.parts)
            error = TableNotFoundError.named(name)
            error.table = name if node.db else f"{database}.{name}"
            error.position = start_of(node.parts[0])
            raise error


def require_tables_of(catalog: Catalog, statement: Statement, database: str) -> None:
    """Check that the tables that a statement names exist, as far as it says so without Spark.

    Args:
        database: The database of table names without one.

    Raises:
        TableNotFoundError, DatabaseNotFoundError: One does not.
    """
    may_be_missing = isinstance(statement, _MAY_BE_MISSING) or getattr(statement, "if_exists", False)
    if isinstance(statement, TableStatement) and not may_be_missing:
        catalog.get_table(f"{statement.table.database or database}.{statement.table.name}")
    if isinstance(statement, Select | ExplainSelect | InsertQuery):
        require_tables(catalog, statement.query, database)
