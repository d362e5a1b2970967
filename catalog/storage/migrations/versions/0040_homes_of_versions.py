"""Index the folders to which vacuum will copy the files of versions, because no other partition may get them."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply the revision."""
    op.create_index("ix_calve_partition_version_home", "calve_partition_version", ["home"])


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index("ix_calve_partition_version_home", "calve_partition_version")
