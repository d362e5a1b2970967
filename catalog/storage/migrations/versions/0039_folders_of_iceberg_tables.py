"""Keep the folders of Iceberg tables that are elsewhere than their metadata, so that no other table's overlap them.

Triggers rename and delete these rows with the table's row in `iceberg_tables`, whichever client changes that.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_TABLE = "calve_iceberg_folder"
_FORGET, _FOLLOW = "calve_forget_folders", "calve_follow_folders"
_OWN = "table_namespace = OLD.table_namespace AND table_name = OLD.table_name AND OLD.catalog_name = 'calve'"
_RENAMED = "OLD.table_namespace <> NEW.table_namespace OR OLD.table_name <> NEW.table_name"
_ACTIONS = {
    _FORGET: ("AFTER DELETE", f"DELETE FROM {_TABLE} WHERE {_OWN}"),
    _FOLLOW: (
        "AFTER UPDATE",
        f"UPDATE {_TABLE} SET table_namespace = NEW.table_namespace, table_name = NEW.table_name WHERE {_OWN} "
        f"AND ({_RENAMED})",
    ),
}


def upgrade() -> None:
    """Apply the revision."""
    op.create_table(
        _TABLE,
        *(sa.Column(name, sa.String(255), nullable=False) for name in ("table_namespace", "table_name")),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("location_key", sa.LargeBinary(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("table_namespace", "table_name", "number", name=f"pk_{_TABLE}"),
    )
    op.create_index(f"ix_{_TABLE}_location_key", _TABLE, ["location_key"])
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name, (event, action) in _ACTIONS.items():
        body = f"BEGIN {action}; END"
        if is_postgresql:
            body = body.replace("; END", "; RETURN NULL; END")
            op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
            body = f"EXECUTE FUNCTION {name}()"
        op.execute(f"CREATE TRIGGER {name} {event} ON iceberg_tables FOR EACH ROW {body}")


def downgrade() -> None:
    """Take the revision back."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name in _ACTIONS:
        op.execute(f"DROP TRIGGER {name} ON iceberg_tables" if is_postgresql else f"DROP TRIGGER {name}")
        if is_postgresql:
            op.execute(f"DROP FUNCTION {name}()")
    op.drop_table(_TABLE)
