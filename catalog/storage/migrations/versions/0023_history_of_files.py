"""Record the history of data files, so that a table can be rolled back to an earlier snapshot.

Files that were retired before are kept in the same table, as files of no revision, until vacuum deletes them: those of
dropped tables with their complete paths, and 0 as the table's id.

The downgrade deletes the history. Files that are no longer in a table are retired files again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_BATCH = 1_000
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_data_file", sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "calve_former_file",
        sa.Column("number", _ID, nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("table_id", "file_id", "partition_id")),
        sa.Column("path", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("row_count", "size_bytes")),
        sa.Column("statistics", sa.Text(), nullable=False),
        sa.Column("operation_number", sa.BigInteger()),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("revision", "until_revision", "retired_at_ms")),
        sa.PrimaryKeyConstraint("number", name="pk_calve_former_file"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_calve_former_file_table_id", "calve_former_file", ["table_id", "until_revision", "number"])
    op.create_table(
        "calve_revision",
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("table_id", "revision", "snapshot_id")),
        sa.Column("scheme", sa.JSON()),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "revision", name="pk_calve_revision"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO calve_former_file (table_id, file_id, partition_id, path, row_count, size_bytes, statistics, "
        "revision, until_revision, retired_at_ms) SELECT COALESCE(t.id, 0), 0, 0, CASE WHEN t.location = r.folder "
        "THEN r.path ELSE r.folder || '/' || r.path END, 0, r.size_bytes, '{}', 0, 0, r.retired_at_ms "
        "FROM calve_retired_file r LEFT JOIN calve_table t ON t.id = r.table_id ORDER BY r.id"
    )
    op.drop_table("calve_retired_file")


def downgrade() -> None:
    """Take the revision back."""
    op.create_table(
        "calve_retired_file",
        sa.Column("id", _ID, nullable=False),
        sa.Column("table_id", sa.BigInteger()),
        sa.Column("table_name", sa.String(512), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("folder", "path")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("size_bytes", "retired_at_ms")),
        sa.PrimaryKeyConstraint("id", name="pk_calve_retired_file"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_calve_retired_file_retired_at_ms", "calve_retired_file", ["retired_at_ms"])
    _retire_former_files(op.get_bind())
    for name in ("calve_revision", "calve_former_file"):
        op.drop_table(name)
    op.drop_column("calve_data_file", "revision")


def _retire_former_files(connection: sa.Connection) -> None:
    """Write the rows of retired files: one for each file that has left its table, also if it was there repeatedly."""
    retired = sa.table(
        "calve_retired_file",
        *map(sa.column, ("table_id", "table_name", "folder", "path", "size_bytes", "retired_at_ms")),
    )
    query = sa.text(
        "SELECT MAX(f.number) AS number, f.table_id, f.path, t.location, "
        "COALESCE(d.name || '.' || t.name, '') AS name, "
        "MAX(f.size_bytes) AS size_bytes, MAX(f.retired_at_ms) AS retired_at_ms FROM calve_former_file f "
        "LEFT JOIN calve_table t ON t.id = f.table_id LEFT JOIN calve_database d ON d.id = t.database_id "
        "WHERE NOT EXISTS (SELECT 1 FROM calve_data_file a WHERE a.id = f.file_id AND a.table_id = f.table_id) "
        "AND (t.id IS NOT NULL OR f.table_id = 0) "
        "GROUP BY f.table_id, f.path, t.location, d.name, t.name ORDER BY 1"
    )
    rows = connection.execute(query).all()
    for first in range(0, len(rows), _BATCH):
        values = []
        for row in rows[first : first + _BATCH]:
            is_complete = row.path.startswith("/") or "://" in row.path
            folder, _, path = row.path.rpartition("/") if is_complete else (row.location, "", row.path)
            values.append(
                {
                    "table_id": row.table_id or None,
                    "table_name": row.name,
                    "folder": folder,
                    "path": path,
                    "size_bytes": row.size_bytes,
                    "retired_at_ms": row.retired_at_ms,
                }
            )
        connection.execute(sa.insert(retired), values)
