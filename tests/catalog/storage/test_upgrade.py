"""Upgrade and downgrade of all schema revisions, with rows in all tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from catalog import Catalog, NewPartition, Table
from catalog.model import Column
from catalog.storage import Storage
from catalog.storage.schema import Base, DataFileRow
from catalog.storage.upgrade import _MIGRATIONS, downgrade, upgrade
from catalog.tables.schemes import scheme_from_properties
from tests.support.effort import effort

Rows = dict[str, list[dict[str, Any]]]

LOST: dict[tuple[str, str], Callable[[dict[str, Any]], bool]] = {
    ("0006", "calve_table"): lambda row: bool(row["kind"] == "view"),
    ("0007", "iceberg_tables"): lambda row: bool(row["catalog_name"] == "calve"),
    ("0007", "iceberg_namespace_properties"): lambda row: bool(row["catalog_name"] == "calve"),
}
"""Revision and table → the rows that the downgrade deletes, according to its docstring; no others may be lost."""

REWRITTEN = {("0011", "calve_table"): {"columns", "partition_keys"}}
"""Revision and table → columns whose values the revision converts."""


@pytest.mark.long
def test_every_revision_goes_back_and_forward_with_rows_in_every_table(catalog: Catalog, flights: Table) -> None:
    fill_every_table(catalog)
    storage = catalog.storage
    newest = shape_of(storage)
    assert all(rows_of(storage)[table.name] for table in Base.metadata.sorted_tables)
    for script in islice(ScriptDirectory(str(_MIGRATIONS)).walk_revisions(), effort(6, None)):
        older = str(script.down_revision or "base")
        shape, rows = shape_of(storage), rows_of(storage)
        downgrade(storage, older)
        older_shape, older_rows = shape_of(storage), rows_of(storage)
        assert_kept(script.revision, without_lost(script.revision, rows), older_rows)
        upgrade(storage, script.revision)
        assert shape_of(storage) == shape, script.revision
        assert_kept(script.revision, older_rows, rows_of(storage))
        downgrade(storage, older)
        assert shape_of(storage) == older_shape, script.revision
        assert_kept(script.revision, older_rows, rows_of(storage))
    upgrade(storage)
    assert shape_of(storage) == newest


def fill_every_table(catalog: Catalog) -> None:
    """Write the rows of a typical catalog, and one row into each table that is still empty."""
    catalog.add_partitions("demo.flights", [NewPartition(["JFK", str(year), None]) for year in range(2010, 2014)])
    for key in ("year", "origin"):
        catalog.create_partition_index("demo.flights", f"by_{key}", [key])
    catalog.build_partition_index("demo.flights", "by_year")
    catalog.repair_table("demo.flights", operation_id="r1")
    catalog.create_view("demo.v", "SELECT 1")
    with catalog.storage.write() as connection:
        for table in Base.metadata.sorted_tables:
            if not connection.scalar(sa.select(sa.func.count()).select_from(table)):
                connection.execute(sa.insert(table).values({column: _made_up(column) for column in table.columns}))


def _made_up(column: sa.Column[Any]) -> Any:
    return {int: 1, bytes: b"x", bool: True, dict: {}}.get(column.type.python_type, "x")


def rows_of(storage: Storage) -> Rows:
    with storage.read() as connection:
        tables = sa.MetaData()
        tables.reflect(connection)
        return {
            table.name: [dict(row) for row in connection.execute(sa.select(table)).mappings()]
            for table in tables.sorted_tables
            if table.name != "calve_alembic_version"
        }


def without_lost(revision: str, rows: Rows) -> Rows:
    return {
        name: [row for row in held if not LOST.get((revision, name), lambda _row: False)(row)]
        for name, held in rows.items()
    }


def assert_kept(revision: str, before: Rows, after: Rows) -> None:
    """Check that the common columns of a table in both schemas have the same rows."""
    for name in before.keys() & after.keys():
        assert len(before[name]) == len(after[name]), (revision, name)
        if before[name]:
            common = sorted(before[name][0].keys() & after[name][0].keys() - REWRITTEN.get((revision, name), set()))
            old, new = (
                sorted(repr([row[column] for column in common]) for row in rows[name]) for rows in (before, after)
            )
            assert old == new, (revision, name)


def shape_of(storage: Storage) -> dict[str, Any]:
    """Return the parts of a schema to compare: columns, keys, indexes, numbering, triggers."""
    with storage.read() as connection:
        inspector = sa.inspect(connection)
        shape: dict[str, Any] = {name: _shape_of_table(inspector, name) for name in inspector.get_table_names()}
        if connection.dialect.name == "sqlite":
            assert connection.execute(sa.text("PRAGMA foreign_key_check")).all() == []
            made = connection.execute(sa.text("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")).all()
            shape["numbered"] = {name for kind, name, sql in made if kind == "table" and "AUTOINCREMENT" in sql}
            shape["triggers"] = {name: sql for kind, name, sql in made if kind == "trigger"}
        else:
            query = "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal"
            shape["triggers"] = {row[0]: row[1] for row in connection.execute(sa.text(query))}
        return shape


def _shape_of_table(inspector: sa.Inspector, name: str) -> dict[str, Any]:
    keys, indexes = inspector.get_foreign_keys(name), inspector.get_indexes(name)
    return {
        "columns": {
            column["name"]: (str(column["type"]), column["nullable"]) for column in inspector.get_columns(name)
        },
        "primary key": inspector.get_pk_constraint(name)["constrained_columns"],
        "foreign keys": sorted((key["name"], key["constrained_columns"], key["referred_table"]) for key in keys),
        "indexes": sorted((index["name"], index["column_names"], bool(index["unique"])) for index in indexes),
        "unique": sorted((key["name"], key["column_names"]) for key in inspector.get_unique_constraints(name)),
    }


def test_statistics_of_chars_are_forgotten_where_they_would_compare_otherwise(catalog: Catalog) -> None:
    catalog.create_database("d")
    scheme = scheme_from_properties(Column("k", "char(4)"), {"PARTITION_TYPE": "RANGE", "RANGE_INFO": "b"})
    table = catalog.create_table("d.t", columns=[("n", "int"), ("k", "char(4)")], scheme=scheme)
    file = {"table_id": table.id, "partition_id": 1, "row_count": 1, "size_bytes": 1}
    known = {"n": ["81", "82", 0], "k": ["6101", "6102", 0]}
    statement = sa.insert(DataFileRow)
    downgrade(catalog.storage, "0014")
    with catalog.storage.write() as connection:
        connection.execute(statement, [{**file, "path": f"{n}", "statistics": json.dumps(known)} for n in range(1001)])
    upgrade(catalog.storage)
    with catalog.storage.read() as connection:
        kept = connection.execute(sa.select(DataFileRow.statistics)).scalars().all()
    assert [json.loads(statistics) for statistics in kept] == [{"n": known["n"]}] * 1001
