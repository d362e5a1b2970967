"""Delete the statistics of columns of type char(n).

From this revision on, their minima and maxima are padded with blanks; before, they were not. A column without
statistics may have any value; the next rewrite of the file adds its statistics again.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_BATCH = 1000
_FILE = sa.table(
    "calve_data_file",
    sa.column("id", sa.BigInteger),
    sa.column("table_id", sa.BigInteger),
    sa.column("statistics", sa.Text),
)
_TABLE = sa.table(
    "calve_table",
    sa.column("id", sa.BigInteger),
    sa.column("columns", sa.JSON),
    sa.column("scheme", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    """Apply the revision."""
    _forget_chars(op.get_bind())


def downgrade() -> None:
    """Take the revision back."""
    _forget_chars(op.get_bind())


def _forget_chars(connection: sa.Connection) -> None:
    query = sa.select(_TABLE.c.id, _TABLE.c.columns).where(_TABLE.c.scheme.is_not(None))
    for table in connection.execute(query).all():
        chars = {column["name"] for column in table.columns if column["type"].lower().startswith("char")}
        if chars:
            _forget(connection, table.id, chars)


def _forget(connection: sa.Connection, table_id: int, columns: set[str]) -> None:
    query = sa.select(_FILE.c.id, _FILE.c.statistics).where(_FILE.c.table_id == table_id).order_by(_FILE.c.id)
    change = sa.update(_FILE).where(_FILE.c.id == sa.bindparam("file_id")).values(statistics=sa.bindparam("kept"))
    last = 0
    while rows := connection.execute(query.where(_FILE.c.id > last).limit(_BATCH)).all():
        connection.execute(change, [{"file_id": row.id, "kept": _without(row.statistics, columns)} for row in rows])
        last = rows[-1].id


def _without(statistics: str, columns: set[str]) -> str:
    known: dict[str, Any] = json.loads(statistics)
    return json.dumps({name: value for name, value in known.items() if name not in columns}, separators=(",", ":"))
