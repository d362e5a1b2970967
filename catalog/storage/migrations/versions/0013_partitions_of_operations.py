"""Add an index of the partitions that operations added."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_NAME = "ix_calve_partition_table_id_operation_number"
_CONDITION = sa.text("operation_number IS NOT NULL")


def upgrade() -> None:
    """Apply the revision."""
    columns = ["table_id", "operation_number"]
    op.create_index(_NAME, "calve_partition", columns, postgresql_where=_CONDITION, sqlite_where=_CONDITION)


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index(_NAME, "calve_partition")
