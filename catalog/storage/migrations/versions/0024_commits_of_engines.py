"""Allow commits of other engines to tables with a partition scheme.

The triggers of revision 0022 refused their commits, renames and drops. Calve now takes their commits in; only renames
and drops are still refused. `delete_file_count` is the number of delete files in the current snapshot.

Earlier versions would not see all rows of unplaced files, and would see rows that delete files have deleted. The
downgrade is refused until `CALL calve.system.place` has placed and applied them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_GUARD = "calve_guard_placed_tables"
_PLACED = (
    "OLD.catalog_name = 'calve' AND EXISTS (SELECT 1 FROM calve_table t JOIN calve_database d ON d.id = t.database_id "
    "WHERE d.name = OLD.table_namespace AND t.name = OLD.table_name AND t.published_location IS NOT NULL"
)
_RENAMED = (
    "NEW.table_namespace <> OLD.table_namespace OR NEW.table_name <> OLD.table_name "
    "OR NEW.catalog_name <> OLD.catalog_name"
)
_RENAMED_NOW = f"{_PLACED} AND ({_RENAMED}))"
_CHANGED_BEFORE = f"{_PLACED} AND (t.published_location <> NEW.metadata_location OR {_RENAMED}))"
_REFUSAL = (
    "Calve places the rows of this table in partitions; rename and drop it with ALTER TABLE and DROP TABLE in Calve"
)
_REFUSAL_BEFORE = (
    "Calve places the rows of this table in partitions, and other engines can only read it; change it with INSERT, "
    "LOAD DATA, ALTER TABLE and DROP TABLE in Calve"
)


def upgrade() -> None:
    """Apply the revision."""
    op.add_column(
        "calve_table", sa.Column("delete_file_count", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    )
    _replace_guards(_RENAMED_NOW, _REFUSAL)


def downgrade() -> None:
    """Take the revision back: the triggers refuse commits again."""
    unplaced = (
        "SELECT count(*) FROM calve_table t WHERE t.delete_file_count > 0 "
        "OR EXISTS (SELECT 1 FROM calve_data_file f WHERE f.table_id = t.id AND f.partition_id = -1)"
    )
    if count := op.get_bind().scalar(sa.text(unplaced)):
        raise RuntimeError(
            f"{count} table(s) have unplaced files or delete files of other engines, which the earlier schema does not "
            "support; run CALL calve.system.place('…') for each of them first"
        )
    _replace_guards(_CHANGED_BEFORE, _REFUSAL_BEFORE)
    op.drop_column("calve_table", "delete_file_count")


def _replace_guards(changed: str, refusal: str) -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for name, event, condition, row in (
        (_GUARD, "UPDATE", changed, "NEW"),
        (f"{_GUARD}_from_drops", "DELETE", f"{_PLACED})", "OLD"),
    ):
        if is_postgresql:
            body = f"BEGIN IF {condition} THEN RAISE EXCEPTION '{refusal}'; END IF; RETURN {row}; END"
            op.execute(f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        else:
            op.execute(f"DROP TRIGGER {name}")
            op.execute(
                f"CREATE TRIGGER {name} BEFORE {event} ON iceberg_tables WHEN {condition} "
                f"BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
            )
