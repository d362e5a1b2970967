"""Let tables with a partition scheme be Iceberg tables that only Calve changes.

The triggers refuse that an engine commits to such a table, renames it or drops it: its rows would be in no partition.
Calve writes the new metadata location to its own table first, in the same transaction.

The downgrade deletes the pointers of these tables; their files stay, and the next upgrade publishes them again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_GUARD = "calve_guard_placed_tables"
_PLACED = (
    "OLD.catalog_name = 'calve' AND EXISTS (SELECT 1 FROM calve_table t JOIN calve_database d ON d.id = t.database_id "
    "WHERE d.name = OLD.table_namespace AND t.name = OLD.table_name AND t.published_location IS NOT NULL"
)
_CHANGED = (
    f"{_PLACED} AND (t.published_location <> NEW.metadata_location OR NEW.table_namespace <> OLD.table_namespace "
    "OR NEW.table_name <> OLD.table_name OR NEW.catalog_name <> OLD.catalog_name))"
)
_REFUSAL = (
    "Calve places the rows of this table in partitions, and other engines can only read it; change it with INSERT, "
    "LOAD DATA, ALTER TABLE and DROP TABLE in Calve"
)


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_table", sa.Column("published_location", sa.Text()))
    if op.get_bind().dialect.name == "postgresql":
        for name, event, condition, row in (
            (_GUARD, "UPDATE", _CHANGED, "NEW"),
            (f"{_GUARD}_from_drops", "DELETE", f"{_PLACED})", "OLD"),
        ):
            body = f"BEGIN IF {condition} THEN RAISE EXCEPTION '{_REFUSAL}'; END IF; RETURN {row}; END"
            op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
            op.execute(f"CREATE TRIGGER {name} BEFORE {event} ON iceberg_tables FOR EACH ROW EXECUTE FUNCTION {name}()")
        return
    for name, event, condition in (
        (_GUARD, "UPDATE", _CHANGED),
        (f"{_GUARD}_from_drops", "DELETE", f"{_PLACED})"),
    ):
        op.execute(
            f"CREATE TRIGGER {name} BEFORE {event} ON iceberg_tables WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        )


def downgrade() -> None:
    """Take the revision back: engines do not find the tables any more."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name in (_GUARD, f"{_GUARD}_from_drops"):
        op.execute(f"DROP TRIGGER {name} ON iceberg_tables" if is_postgresql else f"DROP TRIGGER {name}")
        if is_postgresql:
            op.execute(f"DROP FUNCTION {name}()")
    op.execute(
        "DELETE FROM iceberg_tables WHERE catalog_name = 'calve' AND EXISTS (SELECT 1 FROM calve_table t "
        "JOIN calve_database d ON d.id = t.database_id WHERE d.name = iceberg_tables.table_namespace "
        "AND t.name = iceberg_tables.table_name AND t.published_location IS NOT NULL)"
    )
    op.drop_column("calve_table", "published_location")
    _forget_part_ids(op.get_bind())


def _forget_part_ids(connection: sa.Connection) -> None:
    """Remove the ids of the fields inside of columns, which earlier versions do not know."""
    lists = ("columns", "partition_keys", "dropped_columns")
    table = sa.table("calve_table", sa.column("id"), *(sa.column(name, sa.JSON(none_as_null=True)) for name in lists))
    for row in connection.execute(sa.select(table)).all():
        stored = {name: getattr(row, name) or [] for name in lists}
        without = {
            name: [{key: value for key, value in column.items() if key != "part_ids"} for column in columns]
            for name, columns in stored.items()
        }
        if without != stored:
            changed = {name: columns or getattr(row, name) for name, columns in without.items()}
            connection.execute(sa.update(table).where(table.c.id == row.id).values(changed))
