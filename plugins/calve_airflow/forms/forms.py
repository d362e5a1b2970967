"""The trigger forms of Calve's DAGs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from zlib import crc32

from airflow.sdk import Param

from catalog.settings.contracts import CONTRACT_MODES
from catalog.settings.table_config import BAD_FILES, INVALID_PARTITIONS, MODES, NULL_KEYS, SOURCE_FORMATS

TABLE_PATTERN = r"^[^.\s/]+\.[^.\s/]+$"
AS_TRINO = "as Trino"
"""The choice of the migration form to convert timestamps as Trino does."""

AS_LISTED = "as listed"
"""The choice that takes a field's value from the table's entry in the YAML list."""

_NO_DAG_ID = re.compile(r"[^\w.-]")
_MAX_DAG_ID = 240

_KEY_TYPES = "string, char(n), varchar(n), tinyint, smallint, int, bigint, float, double, decimal(p,s), boolean, date, "
_KEY_TYPES += "timestamp"


def table_param(table: str | None = None) -> Param:
    """Return the form field for a table; if a table is given, the field allows only that table."""
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
    """Return the id of the DAG that loads a table; without a table, of the DAG that loads any table.

    In a name that Airflow does not accept as a DAG id, other characters become `_`, and a checksum of the full name is
    appended.
    """
    if table is None:
        return "add_partitions"
    full = f"add_partitions.{table}"
    short = _NO_DAG_ID.sub("_", full)[:_MAX_DAG_ID]
    return full if short == full else f"{short}-{crc32(full.encode()):08x}"


def _as_listed(choices: Sequence[str], title: str, description: str) -> Param:
    """Return a field that overrides one of the table's entry in the YAML list, or leaves it."""
    return Param(AS_LISTED, type="string", enum=[AS_LISTED, *choices], title=title, description=description)


def load_params(table: str | None = None) -> dict[str, Param]:
    """Return the form of a load: for any table, with dry run on by default, or for one listed table."""
    return {
        "table": table_param(table),
        "dry_run": Param(
            table is None,
            type="boolean",
            title="Dry run",
            description="Only look for new files and check them; write nothing.",
        ),
        "source": Param(
            None,
            type=["null", "string"],
            title="Source",
            description="A file, a folder or a glob of raw files, as a path or as a URI such as s3://bucket/folder. "
            "Templates are not rendered here. Empty: the source in the table's entry in the YAML list.",
        ),
        "source_format": _as_listed(
            SOURCE_FORMATS,
            "Format of the source files",
            "For a table that is not listed, the default is csv.",
        ),
        "keys": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Partition keys of a new table",
            description=f"One per line, in order: day date; or day date from to_date(at). Types: {_KEY_TYPES}.",
        ),
        "contract_columns": _as_listed(
            CONTRACT_MODES,
            "Columns that the table does not have",
            "freeze (the default for a table that is not listed): refuse the file. evolve: add them to the "
            "table. discard_row: leave out, and count, rows with values there. discard_value: leave out these values.",
        ),
        "contract_types": _as_listed(
            CONTRACT_MODES,
            "Values that do not fit their columns",
            "freeze (the default for a table that is not listed): refuse them. evolve: widen the type if "
            "no value is lost. discard_row: leave out, and count, their rows. discard_value: load null instead.",
        ),
        "bad_files": _as_listed(
            BAD_FILES,
            "Files that cannot be loaded",
            "fail (the default for a table that is not listed): add nothing. "
            "skip: load the other files, set these aside and report them; they are tried again when they change.",
        ),
        "invalid_partitions": _as_listed(
            INVALID_PARTITIONS,
            "Partitions that do not fit an index",
            "fail (the default for a table that is not listed): add nothing. "
            "skip: add the other partitions, keep the refused rows in a separate folder and report them.",
        ),
        "null_keys": _as_listed(
            NULL_KEYS,
            "Rows with null as a partition key",
            "refuse (the default for a table that is not listed): add nothing, and name file and line. "
            "allow: load them into Hive's null partition.",
        ),
        "mode": _as_listed(
            MODES,
            "Rows for partitions that exist",
            "new: refuse the load. append: add the rows to these partitions. replace: they have only "
            "these rows afterwards. merge: of rows with the same keys, the latest stays, by the entry's merge. For "
            "a table that is not listed, the default is append if it is stored as Iceberg, and otherwise new.",
        ),
        "reload": Param(
            False,
            type="boolean",
            title="Load files again",
            description="Also load files that were loaded before. Drop their partitions first.",
        ),
        "spark_conf": Param(
            None,
            type=["null", "object"],
            title="Spark configuration",
            description='Resources and queues of this run, for example {"spark.executor.memory": "4g", '
            '"spark.cores.max": 8}. They override those of the table\'s entry in the YAML list.',
            section="Spark",
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
            description="A table has at most 3 indexes. If the index is being built, the run continues its build.",
        ),
        "keys": Param(
            ["origin", "carrier", "month"],
            type="array",
            items={"type": "string"},
            minItems=1,
            title="Keys",
            description="Partition keys in index order: first the keys that filters compare with =.",
        ),
    }


def backfill_params() -> dict[str, Param]:
    """Return the form of a backfill of partition indexes."""
    return {
        "tables": _tables_param("Empty: all tables that have the keys of an index; the others are skipped."),
        "indexes": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": r"^[^:]+:.+$"},
            title="Indexes",
            description="Name and keys, one index per line, for example: by_day: year, day. They are built for each "
            "table above. Empty: the indexes in the table's entry in the YAML list.",
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
            description="Repair missing, wrong and superfluous items. Otherwise the run reports a difference and "
            "fails.",
        ),
    }


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


def advisor_params() -> dict[str, Param]:
    """Return the form of the rebalance advisor; scheduled runs use the defaults."""
    return {
        "tables": _tables_param("Empty: all tables with partitions."),
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
        "tables": _tables_param("Empty: all tables whose entry in the YAML list has a compaction."),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only report the partitions with small files, and what would be compacted now.",
        ),
    }


def migration_params() -> dict[str, Param]:
    """Return the form of migrations from Hive to Iceberg, with dry run on by default."""
    return {
        "tables": _patterns_param("Each table becomes an Iceberg table in place."),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only report columns and their types, files, rows, bytes, and what prevents a migration.",
        ),
        "read_files": Param(
            True,
            type="boolean",
            title="Read the files in a dry run",
            description="List the folders and compare every footer with the table (Spark). Otherwise a dry run "
            "reports only what the catalog knows.",
        ),
        "recursive_directory": Param(
            "fail",
            type="string",
            enum=["fail", "true", "false"],
            title="Subfolders of a table's or partition's folder",
            description="fail: refuse the table and name the subfolder. true: the files in subfolders belong to the "
            "table or partition. false: they do not.",
        ),
        "timestamps": Param(
            AS_TRINO,
            type="string",
            enum=[AS_TRINO, "with zone", "without zone"],
            title="Timestamps become",
            description="As Trino: with zone in Parquet, without zone in ORC; Avro timestamps are refused.",
        ),
        "unusable_files": Param(
            "fail",
            type="string",
            enum=["fail", "skip"],
            title="Files that are empty or of another format",
            description="fail: refuse the table and name the files. skip: skip and report the files.",
        ),
        "verify": Param(
            True,
            type="boolean",
            title="Verify",
            description="Compare what Hive and Iceberg read, by partition and column, before the change is visible.",
        ),
        "verified_partitions": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Partitions to verify",
            description="Number per table, evenly spread. Empty: all.",
        ),
        "flip_source": Param(
            False,
            type="boolean",
            title="Flip the source",
            description="Also change the entry in the Hive Metastore or in Glue that a table was imported from to the "
            "Iceberg table. A revert restores it.",
        ),
    }


def iceberg_params() -> dict[str, Param]:
    """Return the form of the maintenance of Iceberg tables, with dry run on by default."""
    return {
        "tables": _patterns_param(
            "Tables that are not Iceberg tables are skipped if a pattern matches them, and fail if they are named."
        ),
        "dry_run": Param(True, type="boolean", title="Dry run", description="Only show the statements to be run."),
        "rewrite_data_files": Param(
            True,
            type="boolean",
            title="Compact small files",
            description="Iceberg's rewrite_data_files. The old files stay until their snapshots expire.",
        ),
        "target_file_mib": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Target file size, in MiB",
            description="Empty: the table's setting; its default is 512.",
        ),
        "expire_snapshots": Param(
            True,
            type="boolean",
            title="Expire snapshots",
            description="Iceberg's expire_snapshots: removes old snapshots and deletes the files that no other "
            "snapshot uses. A migrated table whose Hive files were rewritten and have expired can no longer be "
            "reverted.",
        ),
        "older_than_days": Param(
            5,
            type="number",
            minimum=0,
            title="Maximum age of snapshots, in days",
            description="Readers of older snapshots lose their files.",
        ),
        "retain_last": Param(
            1,
            type="integer",
            minimum=1,
            title="Snapshots to keep",
            description="Number of latest snapshots to keep regardless of their age.",
        ),
        "partition_fields": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "minLength": 1},
            title="Changes of the partition spec",
            description="One per line: ADD PARTITION FIELD days(at), DROP PARTITION FIELD country, REPLACE PARTITION "
            "FIELD days(at) WITH months(at). They apply to each table above; files keep their old spec until they "
            "are rewritten.",
        ),
        "remove_orphan_files": Param(
            False,
            type="boolean",
            title="Remove orphan files",
            description="Iceberg's remove_orphan_files: deletes every file below the table's folder that no snapshot "
            "uses. A migrated table can then not be reverted if its migration skipped files of the Hive table.",
        ),
        "orphan_days": Param(
            3,
            type="number",
            minimum=1,
            title="Minimum age of orphan files, in days",
            description="Younger files may belong to commits in progress.",
        ),
    }


def _patterns_param(description: str) -> Param:
    return Param(
        type="array",
        items={"type": "string", "pattern": TABLE_PATTERN},
        minItems=1,
        title="Tables",
        description="Written as database.table, one per line; * and ? are wildcards: sales.orders_*, or sales.* for "
        f"the whole database. {description}",
    )


def _tables_param(description: str) -> Param:
    return Param(
        None,
        type=["null", "array"],
        items={"type": "string", "pattern": TABLE_PATTERN},
        title="Tables",
        description=f"Written as database.table, one per line. {description}",
    )
