"""Guard the pointers of Iceberg tables that share files with Hive tables.

PyIceberg's `purge_table` drops the pointer and then deletes all files, regardless of `gc.enabled`. For a snapshot
table, or a table to which files were added, these are files of a Hive table. A trigger refuses to delete such a
pointer, so that no file is deleted; Calve deletes the records of shared files first, in one transaction. When an engine
renames such a table, these records follow the name.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_GUARD, _FOLLOW = "calve_guard_shared_files", "calve_follow_renamed_table"
_SHARED = (
    "OLD.catalog_name = 'calve' AND EXISTS (SELECT 1 FROM calve_shared_location "
    "WHERE table_namespace = OLD.table_namespace AND table_name = OLD.table_name)"
)
_REFUSAL = "the Iceberg table has files of a Hive table, which a purge would delete; drop it in Calve with DROP TABLE"
_RENAMED = "OLD.table_namespace <> NEW.table_namespace OR OLD.table_name <> NEW.table_name"
_MOVE = (
    "UPDATE calve_shared_location SET table_namespace = NEW.table_namespace, table_name = NEW.table_name "
    "WHERE table_namespace = OLD.table_namespace AND table_name = OLD.table_name AND OLD.catalog_name = 'calve'"
)


def upgrade() -> None:
    """Apply the revision."""
    if op.get_bind().dialect.name == "postgresql":
        _function(_GUARD, f"IF {_SHARED} THEN RAISE EXCEPTION '{_REFUSAL}'; END IF; RETURN OLD;")
        _function(_FOLLOW, f"IF {_RENAMED} THEN {_MOVE}; END IF; RETURN NEW;")
        for name, event in ((_GUARD, "BEFORE DELETE"), (_FOLLOW, "AFTER UPDATE")):
            op.execute(f"CREATE TRIGGER {name} {event} ON iceberg_tables FOR EACH ROW EXECUTE FUNCTION {name}()")
        return
    op.execute(
        f"CREATE TRIGGER {_GUARD} BEFORE DELETE ON iceberg_tables WHEN {_SHARED} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    )
    op.execute(f"CREATE TRIGGER {_FOLLOW} AFTER UPDATE ON iceberg_tables WHEN {_RENAMED} BEGIN {_MOVE}; END")


def _function(name: str, body: str) -> None:
    op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")


def downgrade() -> None:
    """Take the revision back: engines can purge such tables again."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name in (_GUARD, _FOLLOW):
        op.execute(f"DROP TRIGGER {name} ON iceberg_tables" if is_postgresql else f"DROP TRIGGER {name}")
        if is_postgresql:
            op.execute(f"DROP FUNCTION {name}()")
