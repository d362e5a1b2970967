"""The trigger forms for the partitions of tables: rebalances, their advisor, compactions and announcements."""

from __future__ import annotations

from airflow.sdk import Param

from calve_airflow.forms.fields import TABLE_PATTERN, tables_param


def rebalance_params() -> dict[str, Param]:
    """Return the form of a change of a table's partitions, with dry run on by default."""
    from catalog.rebalancing.changes import CHANGES

    return {
        "table": Param(
            type="string",
            pattern=TABLE_PATTERN,
            title="Table",
            description="Written as database.table; the table needs a partition scheme.",
        ),
        "operation": Param(
            type="string",
            enum=[*CHANGES],
            title="Operation",
            description="set_partition_num is for HASH; add, split, drop and merge are for RANGE, RANGE_INTERVAL and "
            "LIST; place assigns the files that other engines wrote to their partitions, and needs no other field.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only plan: show which partitions are read, how much data is moved and deleted, and how long "
            "it takes.",
        ),
        **_change_fields(),
    }


def _change_fields() -> dict[str, Param]:
    """Return the fields that only some operations need."""
    return {
        "items": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            title="Bounds or groups",
            description="For add and split, one per line: upper bounds such as 2015-01-01, or groups of values such "
            "as (Mars, Venus). The last bound of a split is the partition's current bound; the groups of a split "
            "together contain the values of the partition.",
        ),
        "partition_ids": Param(
            None,
            type=["null", "array"],
            # With `type` instead of `anyOf`, the page asks for JSON in an editor that reformats the user's input.
            items={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,9}$"}]},
            title="Partition ids",
            description="For drop, merge and split (exactly one), one per line. SHOW PARTITIONS lists them.",
        ),
        "with_data": Param(
            False,
            type="boolean",
            title="With data",
            description="For drop: also delete the rows, after a person has approved it. Otherwise the rows move to "
            "the next range or to the default partition.",
        ),
        "count": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Number of partitions",
            description="For set_partition_num.",
        ),
    }


def advisor_params() -> dict[str, Param]:
    """Return the form of the rebalance advisor; scheduled runs use the defaults."""
    return {
        "tables": tables_param("Empty: all tables with partitions."),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only propose, also for tables whose entry in the YAML list has proposals applied.",
        ),
    }


def announcement_params() -> dict[str, Param]:
    """Return the form of announcements, which has no fields."""
    return {}


def compaction_params() -> dict[str, Param]:
    """Return the form of compactions; scheduled runs use the defaults."""
    return {
        "tables": tables_param("Empty: all tables whose entry in the YAML list has a compaction."),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only report the partitions with small files, and what would be compacted now.",
        ),
    }
