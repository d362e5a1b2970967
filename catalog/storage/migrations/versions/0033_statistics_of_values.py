"""Collect statistics of the values of partition keys, which are parts of one column.

Without them, PostgreSQL expects as many groups as partitions when a statement groups by a key, and sorts all partitions
instead of summing them in parallel. The statistics are those of the next ANALYZE. SQLite has no such statistics.
"""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_KEYS = range(1, 9)
"""Tables with more keys are rare."""


def upgrade() -> None:
    """Apply the revision."""
    if op.get_bind().dialect.name == "postgresql":
        for number in _KEYS:
            value = f"split_part(packed_values, '/', {number})"
            op.execute(f"CREATE STATISTICS calve_partition_value_{number} ON ({value}) FROM calve_partition")


def downgrade() -> None:
    """Take the revision back."""
    if op.get_bind().dialect.name == "postgresql":
        for number in _KEYS:
            op.execute(f"DROP STATISTICS calve_partition_value_{number}")
