"""The trigger forms of migrations to Iceberg, and of the maintenance of Iceberg tables."""

from __future__ import annotations

from airflow.sdk import Param

from calve_airflow.forms.fields import patterns_param

AS_TRINO = "as Trino"
"""The choice of the migration form to convert timestamps as Trino does."""


def migration_params() -> dict[str, Param]:
    """Return the form of migrations from Hive to Iceberg, with dry run on by default."""
    return {
        "tables": patterns_param("Each table becomes an Iceberg table in place."),
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
        **_file_fields(),
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


def _file_fields() -> dict[str, Param]:
    return {
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
    }


def iceberg_params() -> dict[str, Param]:
    """Return the form of the maintenance of Iceberg tables, with dry run on by default."""
    return {
        "tables": patterns_param(
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
        **_expiry_fields(),
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
            description="Deletes the files in the table's folder that no Iceberg table uses; none if another table has "
            "its folder there. A migrated table can then not be reverted if its migration skipped files of the Hive "
            "table.",
        ),
        "orphan_days": Param(
            3,
            type="number",
            minimum=1,
            title="Minimum age of orphan files, in days",
            description="Younger files may belong to commits in progress.",
        ),
    }


def _expiry_fields() -> dict[str, Param]:
    return {
        "expire_snapshots": Param(
            True,
            type="boolean",
            title="Expire snapshots",
            description="Removes old snapshots, and deletes the files in the table's folder that only they use. A "
            "migrated table whose Hive files were rewritten and have expired can no longer be reverted.",
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
    }
