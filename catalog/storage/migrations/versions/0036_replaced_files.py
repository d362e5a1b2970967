"""Record which files of a folder a version has replaced, so that those that others put there later are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_TABLE = "calve_partition_version"


def upgrade() -> None:
    """Apply the revision; the files of earlier versions are told by their times, as before."""
    op.add_column(_TABLE, sa.Column("replaced", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Take the revision back."""
    op.drop_column(_TABLE, "replaced")
