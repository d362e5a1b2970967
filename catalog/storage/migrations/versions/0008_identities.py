"""Add identities that are never reused: of rows on SQLite, of the catalog, and of the tables of operations and files.

Tables get a column for a normalised location, which revision 0012 fills.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_USES = {
    "calve_database": ("id", "SELECT database_id FROM calve_table"),
    "calve_table": ("id", "SELECT table_id FROM calve_partition UNION SELECT table_id FROM calve_data_file"),
    "calve_partition_index": ("id", "SELECT index_id FROM calve_index_item"),
    "calve_operation": (
        "number",
        "SELECT operation_number FROM calve_partition UNION SELECT operation_number FROM calve_data_file "
        "UNION SELECT operation_number FROM calve_source_file",
    ),
    "calve_retired_file": ("id", "SELECT 0"),
}
"""Table → its id column, and the other columns that may have used ids."""

_FULL_NAME = (
    "SELECT t.id FROM calve_table t JOIN calve_database d ON d.id = t.database_id "
    "WHERE d.name || '.' || t.name = {owner}.table_name"
)


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        "calve_catalog",
        sa.Column("identity", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("identity", name=op.f("pk_calve_catalog")),
    )
    op.execute(sa.text("INSERT INTO calve_catalog VALUES (:identity)").bindparams(identity=secrets.token_hex(8)))
    _number_rows(never_reused=True)
    for owner in ("calve_operation", "calve_retired_file"):
        op.add_column(owner, sa.Column("table_id", sa.BigInteger(), nullable=True))
        op.execute(f"UPDATE {owner} SET table_id = ({_FULL_NAME.format(owner=owner)})")
    op.create_index("ix_calve_operation_table_id_state", "calve_operation", ["table_id", "state"])
    op.add_column("calve_table", sa.Column("location_key", sa.LargeBinary(), nullable=True))
    op.create_index("ix_calve_table_location_key", "calve_table", ["location_key"])


def downgrade() -> None:
    """Take the revision back."""
    op.drop_index("ix_calve_table_location_key", "calve_table")
    op.drop_index("ix_calve_operation_table_id_state", "calve_operation")
    for owner, column in (
        ("calve_table", "location_key"),
        ("calve_operation", "table_id"),
        ("calve_retired_file", "table_id"),
    ):
        op.drop_column(owner, column)
    _number_rows(never_reused=False)
    op.drop_table("calve_catalog")


def _number_rows(*, never_reused: bool) -> None:
    """Number SQLite rows by a counter that never reuses ids, or by the highest id; both need a new table."""
    if op.get_bind().dialect.name != "sqlite":
        return
    kwargs = {"sqlite_autoincrement": True} if never_reused else {}
    for name, (number, uses) in _USES.items():
        with op.batch_alter_table(name, recreate="always", table_kwargs=kwargs):
            pass
        if never_reused:
            op.execute(f"DELETE FROM sqlite_sequence WHERE name = '{name}'")
            op.execute(
                f"INSERT INTO sqlite_sequence (name, seq) SELECT '{name}', coalesce(max(used), 0) "
                f"FROM (SELECT {number} AS used FROM {name} UNION {uses})"
            )
