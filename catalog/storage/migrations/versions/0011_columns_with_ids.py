"""Add ids of columns, their names in files, and the dropped columns.

Ids are assigned in the order of the columns, then of the partition keys. The partition column of a scheme becomes the
last column, as in DESCRIBE.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TABLE = sa.table(
    "calve_table",
    sa.column("id", sa.BigInteger),
    sa.column("columns", sa.JSON),
    sa.column("partition_keys", sa.JSON),
    sa.column("scheme", sa.JSON(none_as_null=True)),
    sa.column("last_column_id", sa.BigInteger),
)
_BATCH = 1_000


def upgrade() -> None:
    """Apply the revision."""
    op.add_column("calve_table", sa.Column("dropped_columns", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("calve_table", sa.Column("last_column_id", sa.BigInteger(), nullable=False, server_default="0"))
    _rewrite(_numbered)


def downgrade() -> None:
    """Take the revision back: files are read by the columns' current names again."""
    _rewrite(_unnumbered)
    # Not in a batch, because SQLite's new table would reuse the ids of dropped tables.
    for column in ("last_column_id", "dropped_columns"):
        op.drop_column("calve_table", column)


def _rewrite(changed: Any) -> None:
    connection, last = op.get_bind(), 0
    query = sa.select(_TABLE.c.id, _TABLE.c.columns, _TABLE.c.partition_keys, _TABLE.c.scheme).order_by(_TABLE.c.id)
    statement = sa.update(_TABLE).where(_TABLE.c.id == sa.bindparam("table_id"))
    while rows := connection.execute(query.where(_TABLE.c.id > last).limit(_BATCH)).all():
        connection.execute(
            statement.values({name: sa.bindparam(name) for name in ("columns", "partition_keys", "last_column_id")}),
            [{"table_id": row.id, **changed(row)} for row in rows],
        )
        last = rows[-1].id


def _numbered(row: Any) -> dict[str, Any]:
    placing = None if row.scheme is None else row.scheme["column"]
    columns = [{**column, "id": number} for number, column in enumerate(row.columns, 1)]
    keys = [{**key, "id": number} for number, key in enumerate(row.partition_keys, len(columns) + 1)]
    return {
        "columns": sorted(columns, key=lambda column: column["name"] == placing),
        "partition_keys": keys,
        "last_column_id": len(columns) + len(keys),
    }


def _unnumbered(row: Any) -> dict[str, Any]:
    def plain(column: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in column.items() if name not in ("id", "file_names")}

    return {
        "columns": list(map(plain, row.columns)),
        "partition_keys": list(map(plain, row.partition_keys)),
        "last_column_id": 0,
    }
