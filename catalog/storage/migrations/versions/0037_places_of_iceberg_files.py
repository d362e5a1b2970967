"""Keep the folders in which Iceberg tables have files, so that a deletion need not read the manifests of all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_NAMES = ("catalog_name", "table_namespace", "table_name")


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_iceberg_places",
        *(sa.Column(name, sa.String(255), nullable=False) for name in _NAMES),
        sa.Column("metadata_location", sa.String(1000), nullable=False),
        sa.Column("snapshot_ids", sa.JSON(), nullable=False),
        sa.Column("folders", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint(*_NAMES, name=op.f("pk_calve_iceberg_places")),
    )


def downgrade() -> None:
    """Take the revision back."""
    op.drop_table("calve_iceberg_places")
