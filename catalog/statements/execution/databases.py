"""Execution of statements on databases, and of SHOW TABLES."""

from __future__ import annotations

from catalog.errors import DatabaseNotFoundError
from catalog.model import Table, TableType
from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.results import DONE, StatementResult

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
    """Run DROP DATABASE."""
    try:
        context.catalog.drop_database(statement.name)
    except DatabaseNotFoundError:
        if not statement.if_exists:
            raise
    return DONE


def use_database(context: Context, statement: m.UseDatabase) -> StatementResult:
    """Run USE."""
    context.make_default_database(statement.name)
    context.database = context.catalog.get_database(statement.name).name
    return DONE


def show_databases(context: Context, _statement: m.ShowDatabases) -> StatementResult:
    """Run SHOW DATABASES."""
    return StatementResult(("database",), [[database.name] for database in context.catalog.list_databases()])


def describe_database(context: Context, statement: m.DescribeDatabase) -> StatementResult:
    """Run DESCRIBE DATABASE."""
    database = context.catalog.get_database(statement.name)
    facts = [("Database", database.name), ("Comment", database.description), ("Location", database.location)]
    facts += [(f"Property {name}", value) for name, value in sorted(database.properties.items())]
    return StatementResult(("info_name", "info_value"), [list(fact) for fact in facts])


def show_tables(context: Context, statement: m.ShowTables) -> StatementResult:
    """Run SHOW TABLES, which also returns the type of each table (Hive, Iceberg or view) and Iceberg's metadata."""
    context.make_default_database(statement.database)
    tables = context.catalog.list_tables(statement.database or context.database)
    return StatementResult(
        ("database", "table", "type", "metadata_location"),
        [[table.database, table.name, *_type_of(table)] for table in tables],
    )


def _type_of(table: Table) -> tuple[str, str | None]:
    if table.is_stored_as_iceberg:
        return TableType.ICEBERG, table.published_location
    return _VIEW if table.is_view else table.table_type, table.metadata_location
