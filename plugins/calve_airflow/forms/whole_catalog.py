"""The trigger forms of DAGs for the whole catalog: maintenance, imports and statements."""

from __future__ import annotations

from airflow.sdk import Param


def maintenance_params() -> dict[str, Param]:
    """Return the form of the catalog's maintenance; scheduled runs use the defaults."""
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only report the files and operations that would be deleted.",
        ),
        "grace_hours": Param(
            24,
            type="number",
            minimum=0,
            title="Grace period, in hours",
            description="Keep files that were replaced or written within this time, for readers that still use them.",
        ),
        "retention_days": Param(
            90,
            type="number",
            minimum=0,
            title="Retention of operations, in days",
            description="Delete ended operations from the journal if they have not changed for this time. Less than "
            "90 days needs a person's approval.",
        ),
    }


def import_params() -> dict[str, Param]:
    """Return the form of an import, with dry run on by default."""
    return {
        "source": Param(
            type="string",
            pattern=r"^(hms://[^/\s]+|glue://[^\s]*)",
            title="Source",
            description="A Hive Metastore, hms://host:9083, or Glue, glue://region; "
            "glue://region?endpoint_url=http://host:port for another endpoint.",
        ),
        "tables": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": r"^[^.\s/]+(\.[^.\s/]+)?$"},
            title="Databases and tables",
            description="One per line, for example: sales; sales.*; sales.order_*; crm.people. Empty: everything.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only compare: report which tables and partitions are new, differ, or have vanished.",
        ),
        "update": Param(
            False,
            type="boolean",
            title="Update",
            description="Change tables and partitions whose definition here differs from the source.",
        ),
        "drop_vanished": Param(
            False,
            type="boolean",
            title="Drop vanished partitions",
            description="Drop partitions that the source no longer has; their files stay.",
        ),
    }


def statement_params() -> dict[str, Param]:
    """Return the form of a statement."""
    return {
        "statement": Param(
            type="string",
            format="multiline",
            minLength=1,
            title="Statement",
            description="One SQL statement, with tables as database.table; docs/statements.md lists the statements. "
            "A statement that deletes data waits for a person's approval.",
        ),
    }
