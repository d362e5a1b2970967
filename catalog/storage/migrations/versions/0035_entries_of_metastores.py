"""Keep what engines store in a metastore: owners, storage descriptors, statistics, functions, locks, table versions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_database", sa.Column("details", sa.JSON(), nullable=True))
    op.add_column("calve_table", sa.Column("details", sa.JSON(), nullable=True))
    op.add_column("calve_partition", sa.Column("descriptor_id", sa.BigInteger(), nullable=True))
    op.create_table(
        "calve_descriptor",
        sa.Column("id", _ID, nullable=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("descriptor", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_descriptor")),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_calve_descriptor_table_id_digest", "calve_descriptor", ["table_id", "digest"], unique=True)
    op.create_table(
        "calve_column_statistics",
        sa.Column("table_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("partition_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("column_name", sa.String(255), nullable=False),
        sa.Column("statistics", sa.JSON(), nullable=False),
        sa.Column("analysed_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "partition_id", "column_name", name=op.f("pk_calve_column_statistics")),
    )
    op.create_table(
        "calve_function",
        sa.Column("id", _ID, nullable=False),
        sa.Column("database_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["database_id"], ["calve_database.id"], name=op.f("fk_calve_function_database_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_function")),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_calve_function_database_id_name", "calve_function", ["database_id", "name"], unique=True)
    _create_locks_and_answers()


def _create_locks_and_answers() -> None:
    op.create_table(
        "calve_metastore_lock",
        sa.Column("id", _ID, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("components", sa.JSON(), nullable=False),
        sa.Column("acquired_at_ms", sa.BigInteger(), nullable=True),
        sa.Column("heartbeat_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calve_metastore_lock")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "calve_table_version",
        sa.Column("table_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entry", sa.JSON(), nullable=False),
        sa.Column("replaced_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "number", name=op.f("pk_calve_table_version")),
    )
    op.create_table(
        "calve_given_answer",
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("given_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_calve_given_answer")),
    )
    op.create_index("ix_calve_given_answer_given_at_ms", "calve_given_answer", ["given_at_ms"])


def downgrade() -> None:
    """Take the revision back; what engines stored besides Calve's own definitions is lost."""
    op.drop_index("ix_calve_given_answer_given_at_ms", table_name="calve_given_answer")
    op.drop_table("calve_given_answer")
    op.drop_table("calve_table_version")
    op.drop_table("calve_metastore_lock")
    op.drop_index("uq_calve_function_database_id_name", table_name="calve_function")
    op.drop_table("calve_function")
    op.drop_table("calve_column_statistics")
    op.drop_index("uq_calve_descriptor_table_id_digest", table_name="calve_descriptor")
    op.drop_table("calve_descriptor")
    op.drop_column("calve_partition", "descriptor_id")
    op.drop_column("calve_table", "details")
    op.drop_column("calve_database", "details")
