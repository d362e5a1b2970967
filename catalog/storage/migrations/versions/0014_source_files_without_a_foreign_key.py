"""Drop the foreign key of source files: a dropped table's rows are deleted later, in batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_NAME = "fk_calve_source_file_table_id"
_ROWS = ("calve_partition", "calve_data_file", "calve_renamed_partition", "calve_source_file")


def upgrade() -> None:
    """Apply the revision."""
    with op.batch_alter_table("calve_source_file") as table:
        table.drop_constraint(_NAME, type_="foreignkey")


def downgrade() -> None:
    """Take the revision back; finish drops first, because earlier versions do not."""
    for name in _ROWS:
        op.execute(f"DELETE FROM {name} WHERE table_id NOT IN (SELECT id FROM calve_table)")
    op.execute("DELETE FROM calve_index_item WHERE index_id NOT IN (SELECT id FROM calve_partition_index)")
    _finish_drops_without_files()
    with op.batch_alter_table("calve_source_file") as table:
        table.create_foreign_key(_NAME, "calve_table", ["table_id"], ["id"])


def _finish_drops_without_files() -> None:
    operation = sa.table("calve_operation", *map(sa.column, ("number", "kind", "state")), sa.column("request", sa.JSON))
    drops = sa.select(operation.c.number, operation.c.request).where(
        operation.c.kind == "drop_table", operation.c.state == "COMMITTED"
    )
    connection = op.get_bind()
    done = [row.number for row in connection.execute(drops) if row.request.get("location") is None]
    connection.execute(sa.update(operation).where(operation.c.number.in_(done)).values(state="CLEANED"))
