"""Execution of statements on partition indexes."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.catalog import Catalog
from catalog.errors import IndexAlreadyExistsError, IndexNotFoundError, InvalidIndexError
from catalog.model import IndexState, PartitionIndex, Table
from catalog.partitions.counting import count_visible
from catalog.statements import model as m
from catalog.statements.context import Context
from catalog.statements.results import DONE, StatementResult

LARGE_TABLE = 100_000
"""The number of partitions above which the engine builds an index."""


def create_index(context: Context, statement: m.CreateIndex) -> StatementResult:
    """Run CREATE PARTITION INDEX, and return when the index is ACTIVE or FAILED."""
    name = context.name(statement.table)
    if statement.is_of_hive:
        _refuse_other_columns(context.catalog.get_table(name), statement)
    built = build_index(context, name, statement.index, statement.keys)
    return StatementResult(("index", "state", "failure"), [[built.name, built.state, _failure(built)]])


def build_index(context: Context, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
    """Create a partition index and build it; return it when it is ACTIVE or FAILED.

    Raises:
        IndexAlreadyExistsError: The table has an index of this name, which is not an equal one that is being built.
        EngineUnavailableError: The table is large, and no engine is installed.
    """
    catalog = context.catalog
    definition = catalog.get_table(table)
    is_large = count_visible(catalog.storage, definition).partitions > LARGE_TABLE
    # Start the engine first: if there is none, no index is created.
    engine = context.engine if is_large else None
    created = _create(catalog, table, name, keys)
    if engine is None:
        return catalog.build_partition_index(table, created.name)
    with context.operation() as operation:
        return engine.build_index(operation, definition, created.name)


def _refuse_other_columns(table: Table, statement: m.CreateIndex) -> None:
    """Refuse Hive's index on columns that are no partition keys.

    Raises:
        InvalidIndexError: One is none.
    """
    if others := [name for name in statement.keys if name not in table.key_names]:
        keys = [name for name in statement.keys if name in table.key_names] or table.key_names
        instead = (
            f"write CREATE PARTITION INDEX {statement.index} ON {table.full_name} ({', '.join(keys)})"
            if keys
            else "the table has none"
        )
        raise InvalidIndexError(
            f"{', '.join(others)} is no partition key of {table.full_name}, and indexes are on partition keys only: "
            f"{instead}"
        )


def _create(catalog: Catalog, table: str, name: str, keys: Sequence[str]) -> PartitionIndex:
    """Return a new index; or an equal one that is being built, to continue its build."""
    try:
        return catalog.create_partition_index(table, name, keys)
    except IndexAlreadyExistsError:
        known = {index.name: index for index in catalog.get_partition_indexes(table)}.get(name.lower())
        if known is None or known.state is not IndexState.CREATING or known.keys != tuple(map(str.lower, keys)):
            raise
        return known


def _failure(index: PartitionIndex) -> str | None:
    return None if index.failure_code is None else f"{index.failure_code}: {index.failure_detail}"


def drop_index(context: Context, statement: m.DropIndex) -> StatementResult:
    """Run DROP PARTITION INDEX."""
    try:
        context.catalog.delete_partition_index(context.name(statement.table), statement.index)
    except IndexNotFoundError:
        if not statement.if_exists:
            raise
    return DONE


def show_indexes(context: Context, statement: m.ShowIndexes) -> StatementResult:
    """Run SHOW PARTITION INDEXES."""
    indexes = context.catalog.get_partition_indexes(context.name(statement.table))
    rows = [[index.name, ", ".join(index.keys), str(index.state), _failure(index)] for index in indexes]
    return StatementResult(("index", "keys", "state", "failure"), rows)
