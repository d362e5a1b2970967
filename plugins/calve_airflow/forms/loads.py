"""The trigger forms of loads."""

from __future__ import annotations

import re
from zlib import crc32

from airflow.sdk import Param

from calve_airflow.forms.fields import as_listed, table_param
from catalog.settings.contracts import CONTRACT_MODES
from catalog.settings.table_config import BAD_FILES, INVALID_PARTITIONS, MODES, NULL_KEYS, SOURCE_FORMATS

_NO_DAG_ID = re.compile(r"[^\w.-]")
_MAX_DAG_ID = 240

_KEY_TYPES = "string, char(n), varchar(n), tinyint, smallint, int, bigint, float, double, decimal(p,s), boolean, date, "
_KEY_TYPES += "timestamp"


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


def load_params(table: str | None = None, *, suggested: str | None = None) -> dict[str, Param]:
    """Return the form of a load: for any table, with dry run on by default, or for one listed table.

    Args:
        suggested: The table that an empty form for any table has; None for an example.
    """
    return {**_source_fields(table, suggested), **_rule_fields(), **_effect_fields()}


def _source_fields(table: str | None, suggested: str | None) -> dict[str, Param]:
    return {
        "table": table_param(table, suggested),
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
        "source_format": as_listed(
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
    }


def _rule_fields() -> dict[str, Param]:
    """Return the fields for columns, values and files that do not fit."""
    return {
        "contract_columns": as_listed(
            CONTRACT_MODES,
            "Columns that the table does not have",
            "freeze (the default for a table that is not listed): refuse the file. evolve: add them to the "
            "table. discard_row: leave out, and count, rows with values there. discard_value: leave out these values.",
        ),
        "contract_types": as_listed(
            CONTRACT_MODES,
            "Values that do not fit their columns",
            "freeze (the default for a table that is not listed): refuse them. evolve: widen the type if "
            "no value is lost. discard_row: leave out, and count, their rows. discard_value: load null instead.",
        ),
        "bad_files": as_listed(
            BAD_FILES,
            "Files that cannot be loaded",
            "fail (the default for a table that is not listed): add nothing. "
            "skip: load the other files, set these aside and report them; they are tried again when they change.",
        ),
        "invalid_partitions": as_listed(
            INVALID_PARTITIONS,
            "Partitions that do not fit an index",
            "fail (the default for a table that is not listed): add nothing. "
            "skip: add the other partitions, keep the refused rows in a separate folder and report them.",
        ),
        "null_keys": as_listed(
            NULL_KEYS,
            "Rows with null as a partition key",
            "refuse (the default for a table that is not listed): add nothing, and name file and line. "
            "allow: load them into Hive's null partition.",
        ),
    }


def _effect_fields() -> dict[str, Param]:
    return {
        "mode": as_listed(
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
