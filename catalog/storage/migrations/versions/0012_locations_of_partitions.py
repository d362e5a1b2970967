"""Add an index of the partitions with a location, and the keys of the locations of all tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from catalog.files.locations import location_key

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_NAME = "ix_calve_partition_location"


def upgrade() -> None:
    """Apply the revision."""
    _collate("C")
    has_one = sa.text("location IS NOT NULL")
    op.create_index(_NAME, "calve_partition", ["location"], sqlite_where=has_one, postgresql_where=has_one)
    _write_location_keys()


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index(_NAME, "calve_partition")
    _collate("default")


def _collate(collation: str) -> None:
    """Compare locations by bytes, as SQLite does; this rewrites no rows."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f'ALTER TABLE calve_partition ALTER COLUMN location TYPE text COLLATE "{collation}"')


def _write_location_keys() -> None:
    """Write the keys of all tables, also of those that have one, because their location may have changed."""
    tables = sa.table("calve_table", *map(sa.column, ("id", "location", "kind", "location_key")))
    connection = op.get_bind()
    rows = connection.execute(sa.select(tables.c.id, tables.c.location).where(tables.c.kind != "view")).all()
    for number, location in rows:
        change = sa.update(tables).where(tables.c.id == number)
        connection.execute(change.values(location_key=location_key(location)))
