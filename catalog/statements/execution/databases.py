"""Execution of statements on databases, and of SHOW TABLES."""

from __future__ import annotations

from catalog.errors import DatabaseNotFoundError
from catalog.model import Table, TableType
from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.results import DONE, Cell, StatementResult
from catalog.tables.patterns import hive_pattern

_VIEW = "VIEW"


def create_database(context: Context, statement: m.CreateDatabase) -> StatementResult:
    """Run CREATE DATABASE."""
    context.catalog.create_database(
        statement.name,
        location=statement.location,
        description=statement.comment,
        properties=statement.properties,
        if_not_exists=statement.if_not_exists,
    )
    return DONE


def drop_database(context: Context, statement: m.DropDatabase) -> StatementResult:
    """Run DROP DATABASE; with CASCADE, the result names the tables that were dropped with it."""
    try:
        dropped = context.catalog.drop_database(statement.name, cascade=statement.cascade)
    except DatabaseNotFoundError:
        if not statement.if_exists:
            raise
        return DONE
    if not dropped:
        return DONE
    rows: list[list[Cell]] = [[table.full_name, *_type_of(table), table.location or None] for table in dropped]
    text = f"Dropped {len(dropped):,} table(s) and view(s) of {statement.name}; their files stay"
    return StatementResult(("table", "type", "metadata_location", "location"), rows, text=text)


def use_database(context: Context, statement: m.UseDatabase) -> StatementResult:
    """Run USE."""
    context.make_default_database(statement.name)
    context.database = context.catalog.get_database(statement.name).name
    return DONE


def show_databases(context: Context, statement: m.ShowDatabases) -> StatementResult:
    """Run SHOW DATABASES."""
    matches = hive_pattern(statement.pattern)
    names = [database.name for database in context.catalog.list_databases()]
    return StatementResult(("database",), [[name] for name in names if matches(name)])


def describe_database(context: Context, statement: m.DescribeDatabase) -> StatementResult:
    """Run DESCRIBE DATABASE."""
    database = context.catalog.get_database(statement.name)
    facts = [("Database", database.name), ("Comment", database.description), ("Location", database.location)]
    facts += [(f"Property {name}", value) for name, value in sorted(database.properties.items())]
    return StatementResult(("info_name", "info_value"), [list(fact) for fact in facts])


def show_tables(context: Context, statement: m.ShowTables) -> StatementResult:
    """Run SHOW TABLES, which also returns the type of each table (Hive, Iceberg or view) and Iceberg's metadata."""
    context.make_default_database(statement.database)
    matches = hive_pattern(statement.pattern)
    tables = context.catalog.list_tables(statement.database or context.database)
    return StatementResult(
        ("database", "table", "type", "metadata_location"),
        [[table.database, table.name, *_type_of(table)] for table in tables if matches(table.name)],
    )


def _type_of(table: Table) -> tuple[str, str | None]:
    if table.is_stored_as_iceberg:
        return TableType.ICEBERG, table.published_location
    return _VIEW if table.is_view else table.table_type, table.metadata_location
