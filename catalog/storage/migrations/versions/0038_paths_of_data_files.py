"""Index data files by their paths, by which the commits of other engines name them."""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_INDEX = "ix_calve_data_file_path"


def upgrade() -> None:
    """Apply the revision."""
    op.create_index(_INDEX, "calve_data_file", ["path"], postgresql_using="hash")


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index(_INDEX, table_name="calve_data_file")
