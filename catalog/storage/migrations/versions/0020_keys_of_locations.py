"""Update the keys of remote locations, because more spellings are recognised as the same folder.

The downgrade keeps them; later keys are compared with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from catalog.files.locations import LONGEST_KEY, keys_above, location_key

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_BATCH = 1_000


def upgrade() -> None:
    """Apply the revision."""
    connection = op.get_bind()
    tables = sa.table("calve_table", *map(sa.column, ("id", "location", "location_key")))
    change = sa.update(tables).where(tables.c.id == sa.bindparam("number")).values(location_key=sa.bindparam("key"))
    for rows in _batches(connection, tables.c.id, tables.c.location, tables.c.location_key):
        keys = [(row.id, location_key(row.location)) for row in rows if row.location_key is not None]
        if keys:
            connection.execute(change, [{"number": number, "key": key} for number, key in keys])
    _write_purged_folders(connection)


def downgrade() -> None:
    """Take the revision back."""


def _batches(
    connection: sa.Connection, number: sa.ColumnClause[Any], *columns: sa.ColumnClause[Any]
) -> Iterator[Sequence[Any]]:
    """Yield the rows with remote locations."""
    query = sa.select(number, *columns).where(columns[0].like("%://%")).order_by(number).limit(_BATCH)
    last = 0
    while rows := connection.execute(query.where(number > last)).all():
        last = rows[-1][0]
        yield rows


def _write_purged_folders(connection: sa.Connection) -> None:
    """Write the keys of the folders of unfinished purges; several folders of one purge may now have the same key."""
    folders = sa.table("calve_purged_folder", *map(sa.column, ("location_key", "operation_number", "location")))
    key, number = folders.c.location_key, folders.c.operation_number
    rows = connection.execute(sa.select(folders).where(folders.c.location.like("%://%"))).all()
    taken = {(bytes(row.location_key), row.operation_number) for row in rows}
    for row in rows:
        old = bytes(row.location_key)
        new = max(above for above in keys_above(location_key(row.location)) if len(above) <= LONGEST_KEY)
        same = (key == old) & (number == row.operation_number)
        if new == old:
            continue
        if (new, row.operation_number) in taken:
            connection.execute(sa.delete(folders).where(same))
        else:
            connection.execute(sa.update(folders).where(same).values(location_key=new))
            taken.add((new, row.operation_number))
