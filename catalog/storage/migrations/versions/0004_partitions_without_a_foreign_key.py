"""Drop the foreign key of partitions: it is slower than the insert, and adding partitions locks the table anyway."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NAME = "fk_calve_partition_table_id"
_KWARGS = {"sqlite_autoincrement": True}


def upgrade() -> None:
    """Apply the revision."""
    _keep_what_sqlite_would_lose()
    with op.batch_alter_table("calve_partition", table_kwargs=_KWARGS) as table:
        table.drop_constraint(_NAME, type_="foreignkey")
    _give_it_back()


def downgrade() -> None:
    """Take the revision back."""
    _keep_what_sqlite_would_lose()
    with op.batch_alter_table("calve_partition", table_kwargs=_KWARGS) as table:
        table.create_foreign_key(_NAME, "calve_table", ["table_id"], ["id"])
    _give_it_back()


def _keep_what_sqlite_would_lose() -> None:
    """SQLite copies a table to alter it, which would lose its checks and its last id."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("CREATE TEMPORARY TABLE kept_check AS SELECT * FROM calve_partition_check")
        op.execute(
            "CREATE TEMPORARY TABLE kept_number AS SELECT seq FROM sqlite_sequence WHERE name = 'calve_partition'"
        )


def _give_it_back() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("INSERT OR IGNORE INTO calve_partition_check SELECT * FROM kept_check")
        op.execute("DELETE FROM sqlite_sequence WHERE name = 'calve_partition'")
        op.execute("INSERT INTO sqlite_sequence (name, seq) SELECT 'calve_partition', seq FROM kept_number")
        op.execute("DROP TABLE kept_check")
        op.execute("DROP TABLE kept_number")
