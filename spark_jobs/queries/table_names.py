"""How Spark reads the tables that a SELECT names."""

from __future__ import annotations

from sqlglot import exp

from catalog import Catalog, Table
from catalog.statements.query_tables import named_table, nodes_of_text


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


def end_of(identifier: exp.Expr) -> int:
    """Return the position after an identifier's last character."""
    return int(identifier.meta["end"]) + 1
