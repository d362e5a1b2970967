"""Add the versions of partitions whose files were replaced.

The downgrade fails while partitions wait for vacuum, because earlier versions would never give their folders the
current files. It leaves folders in `_calve_versions` that nobody needs.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_TABLE = "calve_partition_version"
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        _TABLE,
        sa.Column("number", _ID, nullable=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("identity", sa.LargeBinary(16), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("packed_values", "location", "home")),
        sa.Column("owns_home", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("changed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=f"pk_{_TABLE}"),
        sqlite_autoincrement=True,
    )
    op.create_index(f"ix_{_TABLE}_table_id_identity", _TABLE, ["table_id", "identity"])
    op.create_index(f"uq_{_TABLE}_location", _TABLE, ["location"], unique=True)


def downgrade() -> None:
    """Take the revision back."""
    count = op.get_bind().scalar(sa.text(f"SELECT count(*) FROM {_TABLE} WHERE state = 'current'"))
    if count:
        raise RuntimeError(
            f"{count} replaced partition(s) have their files in _calve_versions, which earlier versions do not know; "
            "run `calve vacuum --grace-hours 0` while no reader is running, and downgrade again"
        )
    op.drop_table(_TABLE)
