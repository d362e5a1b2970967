"""The trigger forms of Calve's DAGs."""

from __future__ import annotations

import re
from zlib import crc32

from airflow.sdk import Param

TABLE_PATTERN = r"^[^.\s/]+\.[^.\s/]+$"
AS_TRINO = "as Trino"
"""What a form says for timestamps that become what Trino makes of them."""

AS_LISTED = "as listed"
"""What a form says to leave a field to the table's entry in the YAML list."""

_NO_DAG_ID = re.compile(r"[^\w.-]")
_MAX_DAG_ID = 240

_KEY_TYPES = "string, char(n), varchar(n), tinyint, smallint, int, bigint, float, double, decimal(p,s), boolean, date, "
_KEY_TYPES += "timestamp"


def table_param(table: str | None = None) -> Param:
    """Return the field for a table; with one given, only that one is allowed."""
    if table is not None:
        return Param(table, type="string", const=table, title="Table", description="The table of this DAG.")
    return Param(
        "demo.flights",
        type="string",
        pattern=TABLE_PATTERN,
        title="Table",
        description="Written as database.table.",
    )


def load_dag_id(table: str | None) -> str:
    """Return the id of the DAG that loads a table, or any table by its form.

    A name that Airflow would not take gets `_` for other characters, and ends in a checksum of the whole.
    """
    if table is None:
        return "add_partitions"
    full = f"add_partitions.{table}"
    short = _NO_DAG_ID.sub("_", full)[:_MAX_DAG_ID]
    return full if short == full else f"{short}-{crc32(full.encode()):08x}"


def load_params(table: str | None = None) -> dict[str, Param]:
    """Return the form of a load: of any table, as a dry run unless told otherwise; or of one listed table."""
    return {
        "table": table_param(table),
        "dry_run": Param(
            table is None,
            type="boolean",
            title="Dry run",
            description="Only look for new files and check them; nothing is written.",
        ),
        "source": Param(
            None,
            type=["null", "string"],
            title="Source",
            description="A file, a folder or a glob of raw files. Empty: as the table's entry in the YAML list says.",
        ),
        "source_format": Param(
            AS_LISTED,
            type="string",
            enum=[AS_LISTED, "csv", "json", "parquet", "orc"],
            title="Format of the source files",
            description="For a table that is not listed: csv unless told otherwise.",
        ),
        "keys": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Partition keys of a new table",
            description=f"Name and type of each, one a line, in order, such as: day date. The types are {_KEY_TYPES}.",
        ),
        "invalid_partitions": Param(
            AS_LISTED,
            type="string",
            enum=[AS_LISTED, "fail", "skip"],
            title="Partitions that do not fit an index",
            description="fail, also for a table that is not listed: add nothing. "
            "skip: add the others, keep the refused rows aside and report them.",
        ),
        "reload": Param(
            False,
            type="boolean",
            title="Load files again",
            description="Take files that were loaded before, too. Their partitions must have been dropped.",
        ),
    }


def index_params() -> dict[str, Param]:
    """Return the form of a partition index."""
    return {
        "table": table_param(),
        "index": Param(
            "by_route",
            type="string",
            minLength=1,
            title="Name of the index",
            description="At most 3 indexes on a table. An index that is being built already is taken up again.",
        ),
        "keys": Param(
            ["origin", "carrier", "month"],
            type="array",
            items={"type": "string"},
            minItems=1,
            title="Keys",
            description="Partition keys, in the index's order: those that filters bind by equality first.",
        ),
    }


def backfill_params() -> dict[str, Param]:
    """Return the form of a backfill of partition indexes."""
    return {
        "tables": _tables_param("Empty: all; a table that lacks a key of an index is left out then."),
        "indexes": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": r"^[^:]+:.+$"},
            title="Indexes",
            description="Name and keys of each, one a line, such as: by_day: year, day. Every table above gets them. "
            "Empty: those that the table's entry in the YAML list names.",
        ),
    }


def verify_params() -> dict[str, Param]:
    """Return the form of a verification of partition indexes."""
    return {
        "tables": _tables_param("Empty: all tables of the catalog. Their ACTIVE indexes are verified."),
        "repair": Param(
            False,
            type="boolean",
            title="Repair",
            description="Repair what differs: items that are missing, wrong or superfluous. Otherwise a difference "
            "is reported, and the run fails.",
        ),
    }


def rebalance_params() -> dict[str, Param]:
    """Return the form of a change of a table's partitions: a dry run by default."""
    from catalog.rebalancing.changes import CHANGES

    return {
        "table": Param(
            type="string",
            pattern=TABLE_PATTERN,
            title="Table",
            description="Written as database.table; one with a partition scheme.",
        ),
        "operation": Param(
            type="string",
            enum=[*CHANGES],
            title="Operation",
            description="set_partition_num is for HASH, the others are for RANGE, RANGE_INTERVAL and LIST.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only plan: which partitions are read, how much is moved and deleted, and how long it takes.",
        ),
        "items": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            title="Bounds or groups",
            description="For add and split, one a line: upper bounds such as 2015-01-01; or groups of values such as "
            "(Mars, Venus). The last bound of a split is the partition's own; its groups are together the old one.",
        ),
        "partition_ids": Param(
            None,
            type=["null", "array"],
            # With a type of their own, the page would ask for JSON, in an editor that rearranges what is being typed.
            items={"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,9}$"}]},
            title="Partition ids",
            description="For drop, merge, and, just one, for split; one a line. SHOW PARTITIONS lists them.",
        ),
        "with_data": Param(
            False,
            type="boolean",
            title="With data",
            description="For drop: delete the rows, too, once a person has approved it. Otherwise they go to the next "
            "range, or to the default partition.",
        ),
        "count": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Number of partitions",
            description="For set_partition_num.",
        ),
    }


def maintenance_params() -> dict[str, Param]:
    """Return the form of the catalog's maintenance; the schedule takes it as it is."""
    return {
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only say what would be deleted and forgotten.",
        ),
        "grace_hours": Param(
            24,
            type="number",
            minimum=0,
            title="Grace period, in hours",
            description="Files that were replaced, or written, since then stay for the readers that are at work.",
        ),
        "retention_days": Param(
            90,
            type="number",
            minimum=0,
            title="Operations are kept, in days",
            description="Ended operations go from the journal when nobody has touched them for so long. Less than "
            "90 days wait for a person's approval.",
        ),
    }


def import_params() -> dict[str, Param]:
    """Return the form of an import: a dry run, unless told otherwise."""
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
            description="One a line, such as: sales; sales.*; sales.order_*; crm.people. Empty: everything.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only compare: which tables and partitions are new, differ, or have vanished.",
        ),
        "update": Param(
            False,
            type="boolean",
            title="Update",
            description="Change tables and partitions that are defined otherwise here than in the source.",
        ),
        "drop_vanished": Param(
            False,
            type="boolean",
            title="Drop vanished partitions",
            description="Drop the partitions that the source does not have; their files stay.",
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
            description="One SQL statement, with tables as database.table; docs/statements.md lists what there is. "
            "What deletes data waits for a person's approval.",
        ),
    }


def advisor_params() -> dict[str, Param]:
    """Return the form of the look at all tables' partitions; the schedule takes it as it is."""
    return {
        "tables": _tables_param("Empty: all tables with a partition scheme."),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only propose, also for tables whose entry in the YAML list lets the proposals be done.",
        ),
    }


def migration_params() -> dict[str, Param]:
    """Return the form of migrations from Hive to Iceberg: a dry run, unless told otherwise."""
    return {
        "tables": _patterns_param("Each becomes an Iceberg table in place."),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only look: columns and their types, files, rows, bytes, and what stands against it.",
        ),
        "read_files": Param(
            True,
            type="boolean",
            title="Read the files in a dry run",
            description="List the folders and compare every footer with the table (Spark). Otherwise a dry run says "
            "only what the catalog knows.",
        ),
        "recursive_directory": Param(
            "fail",
            type="string",
            enum=["fail", "true", "false"],
            title="Folders inside a table's or partition's folder",
            description="fail: refuse the table, and name the folder. true: their files belong to it. false: they do "
            "not.",
        ),
        "timestamps": Param(
            AS_TRINO,
            type="string",
            enum=[AS_TRINO, "with zone", "without zone"],
            title="Timestamps become",
            description="As Trino: with zone in Parquet, without in ORC, and Avro's are refused.",
        ),
        "unusable_files": Param(
            "fail",
            type="string",
            enum=["fail", "skip"],
            title="Files that are empty, or of another format",
            description="fail: refuse the table, and name them. skip: leave them out, and report them.",
        ),
        "verify": Param(
            True,
            type="boolean",
            title="Verify",
            description="Compare what Hive and Iceberg read, by partition and column, before anybody sees the change.",
        ),
        "verified_partitions": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Partitions to verify",
            description="How many of each table, evenly spread. Empty: all.",
        ),
        "flip_source": Param(
            False,
            type="boolean",
            title="Flip the source",
            description="Let the entry in the Hive Metastore or in Glue that a table was imported from be the Iceberg "
            "table's, too. A revert gives it back.",
        ),
    }


def iceberg_params() -> dict[str, Param]:
    """Return the form of the upkeep of Iceberg tables: a dry run, unless told otherwise."""
    return {
        "tables": _patterns_param("Others than Iceberg tables are left out, or fail where they are named."),
        "dry_run": Param(True, type="boolean", title="Dry run", description="Only say which statements would be run."),
        "rewrite_data_files": Param(
            True,
            type="boolean",
            title="Put small files together",
            description="Iceberg's rewrite_data_files. The old files stay until their snapshots expire.",
        ),
        "target_file_mib": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Size of files, in MiB",
            description="Empty: as the table says; 512 unless it says otherwise.",
        ),
        "expire_snapshots": Param(
            True,
            type="boolean",
            title="Expire snapshots",
            description="Iceberg's expire_snapshots: forgets old ones, and deletes files that no other snapshot has. "
            "A migrated table whose Hive files were rewritten and have expired cannot be reverted any more.",
        ),
        "older_than_days": Param(
            5,
            type="number",
            minimum=0,
            title="Snapshots expire after, in days",
            description="Readers of older ones would miss their files.",
        ),
        "retain_last": Param(
            1,
            type="integer",
            minimum=1,
            title="Snapshots that stay",
            description="So many of the latest stay, whatever their age.",
        ),
        "partition_fields": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            title="Changes of the partition spec",
            description="One a line: ADD PARTITION FIELD days(at), DROP PARTITION FIELD country, REPLACE PARTITION "
            "FIELD days(at) WITH months(at). Every table above gets them; files keep their old spec until they are "
            "rewritten.",
        ),
        "remove_orphan_files": Param(
            False,
            type="boolean",
            title="Remove orphan files",
            description="Iceberg's remove_orphan_files: deletes every file below the table's folder that no snapshot "
            "has. A migrated table then cannot be reverted if files of the Hive table were left out.",
        ),
        "orphan_days": Param(
            3,
            type="number",
            minimum=1,
            title="Orphan files are deleted after, in days",
            description="Younger ones may belong to commits that are under way.",
        ),
    }


def _patterns_param(description: str) -> Param:
    return Param(
        type="array",
        items={"type": "string", "pattern": TABLE_PATTERN},
        minItems=1,
        title="Tables",
        description="Written as database.table, one a line; * and ? stand for characters: sales.orders_*, and sales.* "
        f"is the whole database. {description}",
    )


def _tables_param(description: str) -> Param:
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string", "pattern": TABLE_PATTERN},
        title="Tables",
        description=f"Written as database.table, one a line. {description}",
    )
