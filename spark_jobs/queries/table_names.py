"""How Spark reads the tables that a SELECT names."""

from __future__ import annotations

from sqlglot import exp

from catalog import Catalog, Table
from catalog.files.locations import comparable, is_within
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


def table_of_file(catalog: Catalog, sql: str, database: str, path: str) -> str | None:
    """Return the name of the table of a SELECT that has a file in its folder; None if that is not known.

    Args:
        database: The database of table names without one.
    """
    tables = [table for node in nodes_of_text(sql) if (table := named_table(catalog, node, database)) is not None]
    names = dict.fromkeys(table.full_name for table in tables if not table.is_view)
    within = [table for table in tables if table.location and is_within(comparable(path), comparable(table.location))]
    if within:
        return within[0].full_name
    return next(iter(names)) if len(names) == 1 else None


def is_read_by_iceberg(node: exp.Table, table: Table) -> bool:
    """Return whether Iceberg always reads what a reference names: an Iceberg table, or a metadata table of one."""
    return table.is_iceberg or bool(node.catalog)


def end_of(identifier: exp.Expr) -> int:
    """Return the position after an identifier's last character."""
    return int(identifier.meta["end"]) + 1
