"""Keep the folder of partitions with an empty string as value.

From this revision on, an empty string is Hive's null, and its default folder is that of null. An existing partition
keeps its value, and gets its current folder `k=` as location.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from catalog.model.partition_names import folder_start

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_PARTITION = sa.table(
    "calve_partition",
    sa.column("id", sa.BigInteger),
    sa.column("table_id", sa.BigInteger),
    sa.column("packed_values", sa.Text),
    sa.column("location", sa.Text),
)
_TABLE = sa.table(
    "calve_table",
    sa.column("id", sa.BigInteger),
    sa.column("location", sa.Text),
    sa.column("partition_keys", sa.JSON),
)


def upgrade() -> None:
    """Apply the revision."""
    connection = op.get_bind()
    packed = _PARTITION.c.packed_values
    has_empty = sa.or_(packed == "", packed.like("/%"), packed.like("%/"), packed.like("%//%"))
    query = (
        sa.select(_PARTITION.c.id, packed, _TABLE.c.location, _TABLE.c.partition_keys)
        .join(_TABLE, _TABLE.c.id == _PARTITION.c.table_id)
        .where(_PARTITION.c.location.is_(None), has_empty)
    )
    for partition_id, values, location, keys in connection.execute(query).all():
        parts = zip(keys, values.split("/"), strict=True)
        folders = [f"{folder_start(key['name'])}{value}" for key, value in parts]
        change = sa.update(_PARTITION).where(_PARTITION.c.id == partition_id)
        connection.execute(change.values(location="/".join([location, *folders])))


def downgrade() -> None:
    """Take the revision back: the stored location equals the default folder again."""
