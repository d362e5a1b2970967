"""Changes of the rows of Iceberg tables whose contents the catalog does not record: migrated ones, and snapshots.

Iceberg's runtime makes the change, by the table's own properties (copy-on-write or merge-on-read), in a catalog that
only this session has (`spark_jobs.changing.private_tables`). One transaction shows it to readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Table
from catalog.datafiles.committing import CHANGE_ROWS, OPERATION_MARK
from catalog.datafiles.intake import require_as_read
from catalog.errors import AmbiguousMergeError, PlanConflictError, UnsupportedChangeError
from catalog.iceberg.live_columns import with_live_columns
from catalog.operations.failpoints import Point, reached
from catalog.operations.records import Operation
from catalog.partitions.specs import PartitionSpec, spec_values
from catalog.statements.merges import MergeAction, MergeCase
from catalog.statements.model import MergeRows
from spark_jobs.changing.changed_rows import clause_values
from spark_jobs.changing.private_tables import PRIVATE, PrivateTable, private_table
from spark_jobs.queries.query import as_parameters, prune_query
from spark_jobs.reading.iceberg import read_metadata_file
from spark_jobs.reading.paths import quoted, quoted_table, text_literal
from spark_jobs.rows.value_checks import RowCheck, first_problem, shaped_rows
from spark_jobs.sessions.session import attempt_here

_ATTEMPTS = 3
"""How often a change is made again because another engine has committed meanwhile."""

_MARK = f"spark.sql.iceberg.snapshot-property.{OPERATION_MARK}"
_TARGET, _SOURCE = "calve/target", "calve/source"
_SOURCE_FRAME = "calve_source"
_DELETE_MODE, _COPY = "write.delete.mode", "copy-on-write"
_AMBIGUOUS = "MERGE_CARDINALITY_VIOLATION"

Report = dict[str, Any]
Change = Callable[[Table, PrivateTable], Report]
"""Changes a private table, and returns what the report has besides the numbers of files."""


def write(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    frame: DataFrame,
    overwritten: PartitionSpec | None = None,
    read_from: str | None = None,
) -> Report:
    """Add rows, or let them replace others; return the report, with `rows`.

    Args:
        frame: The new rows, as for `append_rows`.
        overwritten: None to add the rows; values of partition keys to replace all rows with them; empty to replace the
            partitions that have new rows, of a table without partitions all rows.
        read_from: The metadata of the table of which they are read; None if they come from elsewhere.

    Raises:
        ConflictError: Somebody has committed to the table since the frame has read it.
        InvalidRowsError: A value does not have its column's type.
        UnsupportedChangeError: Partitions are to be replaced that Iceberg cannot replace, of a former partition spec.
    """

    def change(table: Table, target: PrivateTable) -> Report:
        require_as_read(table, table.metadata_location, read_from)
        rows, columns = shaped_rows(table, frame)
        check = RowCheck(table, first_problem(columns))
        written = check.observe(rows).select(*(checked.value.alias(checked.column.name) for checked in columns))
        writer = written.writeTo(target.sql_name)
        if overwritten is None:
            writer.append()
        elif overwritten or target.java.spec().isUnpartitioned():
            writer.overwrite(f.expr(_of_partition(table, overwritten)))
        else:
            _refuse_former_specs(table, target)
            writer.overwritePartitions()
        return {"rows": check.finish()}

    return _changed(spark, catalog, operation, change)


def delete(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    where: str | None,
    values: PartitionSpec | None = None,
    *,
    for_good: bool = False,
) -> Report:
    """Delete the rows that meet a condition; return the report, with the number of deleted `rows`.

    Args:
        where: The condition; None for all rows of the partitions with some values.
        for_good: No data file of the new snapshot has such rows, and no delete file hides some.
    """

    def change(table: Table, target: PrivateTable) -> Report:
        if where is None:
            condition, parameters = _of_partition(table, values or {}), dict[str, DataFrame]()
        else:
            condition, parameters = as_parameters(spark, catalog, where, quoted_table(table))
        count = _count(spark, catalog, table, condition if where is None else where)
        mode = target.java.properties().get(_DELETE_MODE) if for_good else None
        if for_good and _total(target, "total-delete-files"):
            options = "map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
            spark.sql(f"CALL {PRIVATE}.system.rewrite_data_files(table => '{target.sql_name}', options => {options})")
        if count:
            if mode not in (None, _COPY):
                _set_delete_mode(spark, target, _COPY)
            text = f"DELETE FROM {target.sql_name} AS {quoted(table.name)} WHERE (\n{condition}\n)"
            _run(spark, text, parameters)
            if mode not in (None, _COPY):
                _set_delete_mode(spark, target, mode)
        return {"rows": count}

    return _changed(spark, catalog, operation, change)


def update(
    spark: SparkSession, catalog: Catalog, operation: Operation, assignments: Mapping[str, str], where: str
) -> Report:
    """Update the rows that meet a condition; return the report, with the number of updated `rows`.

    Args:
        assignments: Column → expression of its new value.
    """

    def change(table: Table, target: PrivateTable) -> Report:
        condition, parameters = as_parameters(spark, catalog, where, quoted_table(table))
        count = _count(spark, catalog, table, where)
        if count:
            sets = []
            for name, expression in assignments.items():
                value, more = as_parameters(spark, catalog, expression, quoted_table(table))
                sets.append(f"{quoted(name)} = (\n{value}\n)")
                parameters |= more
            text = f"UPDATE {target.sql_name} AS {quoted(table.name)} SET {', '.join(sets)} WHERE (\n{condition}\n)"
            _run(spark, text, parameters)
        return {"rows": count}

    return _changed(spark, catalog, operation, change)


def merge(spark: SparkSession, catalog: Catalog, operation: Operation, statement: MergeRows) -> Report:
    """Run a MERGE; return the report, with `rows_inserted`, `rows_updated` and `rows_deleted`.

    Raises:
        AmbiguousMergeError: Several rows of the source match a row of the table.
    """
    sql = f"SELECT * FROM {statement.source} AS {quoted(statement.source_alias)}"
    # Read once. Spark does not plan a MERGE whose source has a query of an Iceberg table.
    source = prune_query(spark, sql, catalog=catalog, untrusted=sql).frame.localCheckpoint()
    return _changed(spark, catalog, operation, partial(_merged, spark, catalog, statement, source))


def _merged(
    spark: SparkSession,
    catalog: Catalog,
    statement: MergeRows,
    source: DataFrame,
    table: Table,
    target: PrivateTable,
) -> Report:
    assert table.metadata_location is not None
    frames = {_TARGET: read_metadata_file(spark, table.metadata_location), _SOURCE: source}
    # Only their columns are needed. Spark would confuse those of a source that reads the table itself.
    given = {name: spark.createDataFrame([], frame.schema) for name, frame in frames.items()}
    own, others = (
        f"{quoted(name)} AS {quoted(alias)}"
        for name, alias in ((_TARGET, statement.alias), (_SOURCE, statement.source_alias))
    )
    scopes = {
        MergeCase.MATCHED: f"{own} CROSS JOIN {others}",
        MergeCase.NOT_MATCHED: others,
        MergeCase.NOT_MATCHED_BY_SOURCE: own,
    }
    parameters = {_SOURCE_FRAME: source}

    def checked(expression: str, case: MergeCase) -> str:
        text, more = as_parameters(spark, catalog, expression, scopes[case], given)
        parameters.update(more)
        return f"(\n{text}\n)"

    lines = [
        f"MERGE INTO {target.sql_name} AS {quoted(statement.alias)}",
        f"USING {{{_SOURCE_FRAME}}} AS {quoted(statement.source_alias)}",
        f"ON {checked(statement.condition, MergeCase.MATCHED)}",
    ]
    for clause in statement.clauses:
        condition = "" if clause.condition is None else f" AND {checked(clause.condition, clause.case)}"
        values = {}
        if clause.action is not MergeAction.DELETE:
            new = clause_values(table, statement, clause, source.columns)
            values = {quoted(name): checked(expression, clause.case) for name, expression in new.items()}
        lines.append(f"WHEN {clause.case}{condition} THEN {_action(clause.action, values)}")
    try:
        _run(spark, "\n".join(lines), parameters)
    except PySparkException as error:
        if _AMBIGUOUS in str(error):
            raise AmbiguousMergeError(table.full_name) from error
        raise
    counts = target.summary()
    # Without a commit, there is nothing to count.
    return {
        f"rows_{done}": counts.get(f"spark.merge-into.num-target-rows-{done}", 0)
        for done in ("inserted", "updated", "deleted")
    }


def _action(action: MergeAction, values: Mapping[str, str]) -> str:
    """Return what a clause of a MERGE does, in SQL.

    Args:
        values: Quoted column → its new value.
    """
    match action:
        case MergeAction.DELETE:
            return "DELETE"
        case MergeAction.UPDATE:
            return f"UPDATE SET {', '.join(f'{name} = {value}' for name, value in values.items())}"
    return f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def compact(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    values: PartitionSpec | None = None,
    target_bytes: int | None = None,
) -> Report:
    """Compact small files by Iceberg's `rewrite_data_files`.

    Args:
        values: Values of some partition keys; None for all partitions.
        target_bytes: The approximate size of the new files; None for the table's setting.

    Returns:
        The report: `files_before` and `files`, and `partitions_replaced`.
    """

    def change(table: Table, target: PrivateTable) -> Report:
        arguments = f"table => '{target.sql_name}'"
        if values:
            arguments += f", where => {text_literal(_of_partition(table, values))}"
        if target_bytes is not None:
            arguments += f", options => map('target-file-size-bytes', '{target_bytes}')"
        row = spark.sql(f"CALL {PRIVATE}.system.rewrite_data_files({arguments})").collect()[0]
        return {
            "partitions_replaced": target.summary().get("changed-partition-count", 0),
            "files_before": row["rewritten_data_files_count"],
            "files": row["added_data_files_count"],
        }

    return _changed(spark, catalog, operation, change)


def _changed(spark: SparkSession, catalog: Catalog, operation: Operation, change: Change) -> Report:
    """Make a change, which is visible when this returns; return its report, of a repeated call the same one.

    Raises:
        PlanConflictError: Other engines have committed during each attempt.
    """
    if operation.is_committed:
        return dict(operation.report[CHANGE_ROWS])
    with attempt_here(catalog, operation, CHANGE_ROWS) as attempt:
        for tries_left in reversed(range(_ATTEMPTS)):
            table = with_live_columns(catalog.get_table(operation.table))
            with private_table(spark, catalog, table) as target:
                try:
                    spark.conf.set(_MARK, operation.id)
                    report = {**change(table, target), **_files(target)}
                    reached(Point.FILES_WRITTEN)
                except (Exception, KeyboardInterrupt):
                    target.discard()
                    raise
                finally:
                    spark.conf.unset(_MARK)
                location = target.location if target.is_changed else str(table.metadata_location)
                note = partial(catalog.loading.note_statement, table=table, operation=operation)
                # After another error than this one, the table may have the files.
                try:
                    catalog.committer.commit_metadata(
                        operation.id, CHANGE_ROWS, attempt, table, location, report, prepare=note
                    )
                except PlanConflictError:
                    target.discard()
                    if not tries_left:
                        raise
                else:
                    return report
    raise AssertionError("unreachable")


def _files(target: PrivateTable) -> Report:
    """Return the numbers of files that the change has written and removed."""
    counts = target.summary()
    names = {
        "files_written": ("added-data-files", "added-delete-files"),
        "files_removed": ("deleted-data-files", "removed-delete-files"),
        "bytes_written": ("added-files-size",),
    }
    changed = {"partitions_changed": counts.get("changed-partition-count", 0)}
    return changed | {name: sum(counts.get(counter, 0) for counter in counters) for name, counters in names.items()}


def _refuse_former_specs(table: Table, target: PrivateTable) -> None:
    """Refuse to replace the partitions of new rows where Iceberg would not find all rows of these.

    Raises:
        UnsupportedChangeError: The table has files of another partition spec than its present one.
    """
    snapshot, spec = target.java.currentSnapshot(), int(target.java.spec().specId())
    manifests = [] if snapshot is None else snapshot.dataManifests(target.java.io())
    if any(int(manifest.partitionSpecId()) != spec and _has_files(manifest) for manifest in manifests):
        raise UnsupportedChangeError(
            f"table {table.full_name} has files of a former partition spec, in which INSERT OVERWRITE would leave rows "
            "of the partitions that it replaces; delete these rows by DELETE, and add the new ones by INSERT INTO"
        )


def _has_files(manifest: Any) -> bool:
    return bool(manifest.hasExistingFiles() or manifest.hasAddedFiles())


def _total(target: PrivateTable, name: str) -> int:
    """Return a total of the current snapshot; 0 without one."""
    snapshot = target.java.currentSnapshot()
    return 0 if snapshot is None else int(snapshot.summary().get(name) or 0)


def _set_delete_mode(spark: SparkSession, target: PrivateTable, mode: str) -> None:
    spark.sql(f"ALTER TABLE {target.sql_name} SET TBLPROPERTIES ('{_DELETE_MODE}'='{mode}')")


def _run(spark: SparkSession, text: str, parameters: Mapping[str, Any]) -> None:
    # Spark takes braces for parameters only if there are any.
    spark.sql(text, **parameters)


def _count(spark: SparkSession, catalog: Catalog, table: Table, where: str) -> int:
    """Return the number of rows that meet a condition; Iceberg's metadata tell it for whole files."""
    sql = f"SELECT count(*) FROM {quoted_table(table)} WHERE (\n{where}\n)"
    return int(prune_query(spark, sql, catalog=catalog, untrusted=sql).frame.collect()[0][0])


def _of_partition(table: Table, values: PartitionSpec) -> str:
    """Return the condition for the rows of the partitions with some values, in SQL.

    Raises:
        InvalidPartitionSpecError: A name is not a partition key.
    """
    parts = []
    for position, value in spec_values(table, values).items():
        key = table.partition_keys[position]
        if value is None:
            parts.append(f"{quoted(key.name)} IS NULL")
        else:
            parts.append(f"{quoted(key.name)} = CAST({text_literal(value)} AS {key.type})")
    return " AND ".join(parts) or "true"
