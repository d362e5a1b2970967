"""Changes of the rows of tables: overwritten, deleted, updated and compacted.

`spark_jobs.changing.scheme_changes` changes tables with a partition scheme. Of other tables, a change reads the
partitions that it concerns, writes their new rows, and publishes them in place of the old ones in one transaction
(`LoadMode.REPLACE`). Running readers keep the old files for the grace period.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Partition, PartitionState, Table
from catalog.datafiles.committing import CHANGE_ROWS
from catalog.datafiles.compacting import files_to_compact
from catalog.errors import UnsupportedChangeError
from catalog.iceberg.live_columns import with_live_columns
from catalog.loading.replaced_folders import PartitionsRead, list_files, overtaken
from catalog.model.partition_names import partition_path
from catalog.operations.changes import COMPACT
from catalog.operations.patience import planned_again
from catalog.operations.records import Operation, OperationKind
from catalog.rebalancing.planning import target_file_bytes, with_target_file_bytes
from catalog.settings.load_keys import RANDOM_FUNCTIONS
from catalog.storage.values import ValueEncoder
from spark_jobs.changing import iceberg_changes, scheme_changes
from spark_jobs.changing.changed_rows import (
    IS_HIT,
    check,
    check_alone,
    check_assignments,
    rows_updated,
    rows_without,
    with_hits,
)
from spark_jobs.changing.concerned_partitions import (
    current_files,
    identities_of_rows,
    partitions_among,
    refuse_missing,
    rows_of,
)
from spark_jobs.changing.literals import check_literals
from spark_jobs.queries.one_state import one_state_in_subqueries
from spark_jobs.queries.query import PrunedQuery, prune_query
from spark_jobs.reading.paths import quoted, quoted_table
from spark_jobs.rows.value_checks import shaped_rows
from spark_jobs.writing.file_sizes import changed_settings, size_settings
from spark_jobs.writing.value_loading import NewRows, publish_rows, refuse_others

log = logging.getLogger("spark_jobs.changing.row_changes")

CHANGE = CHANGE_ROWS
"""The step of a change's operation."""


def overwrite_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    frame: DataFrame,
    *,
    values: Mapping[str, str | None] | None = None,
    read_from: str | None = None,
    select: Callable[[Table], PrunedQuery] | None = None,
    request: Mapping[str, Any] | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Replace partitions by rows, in one operation; a repeated call returns the same report.

    Args:
        frame: As for `append_rows`.
        values: Values of some keys: all partitions with these values are replaced, also those for which there are no
            rows. Without values, the partitions of the rows are replaced.
        read_from: If the frame reads rows of the table itself, and this is stored as Iceberg: its `metadata_location`
            or `live_location` before the frame read it. Without it, rows that others commit meanwhile are lost.
        select: If the frame reads rows of the table itself, and this is a Hive-style table: returns the rows anew, for
            the table as it is then. Without it, what others change meanwhile is lost, too.
        request: What the journal keeps of the request besides.

    Returns:
        The report: `rows`, `files`, `bytes`, `partitions_added`, `partitions_replaced` and `partitions_removed`.

    Raises:
        UnsupportedChangeError: The table has no partition keys.
        ConflictError: Somebody has committed to the table since the frame has read it.
        CatalogError: See `append_rows`.
    """
    definition = _changeable(catalog, table)
    shaped_rows(definition, frame)
    request = {"change": "overwrite", "values": dict(values or {}), **(request or {})}
    if definition.is_iceberg:
        operation = _begin(catalog, operation_id, definition, request, requested_by)
        return iceberg_changes.write(spark, catalog, operation, frame, values or {}, read_from)
    if definition.scheme is not None:
        operation = _begin(catalog, operation_id, definition, request, requested_by)
        return _of_scheme(operation, lambda: scheme_changes.overwrite(spark, catalog, operation, frame, read_from))

    def prepare(current: Table) -> NewRows:
        given, read = (frame, None) if select is None else _selected(current, select)
        rows, columns = shaped_rows(current, given)
        replaced = catalog.partitions_of(table, values) if values else []
        return NewRows(current, rows, columns, replaced, replaces_others=True, read_from=read_from, read=read)

    return _change(spark, catalog, operation_id, definition, request, prepare, requested_by)


def _selected(table: Table, select: Callable[[Table], PrunedQuery]) -> tuple[DataFrame, PartitionsRead]:
    """Return rows that are read from a table, and its partitions from which they are read.

    Raises:
        PlanConflictError: Partitions were added meanwhile.
    """
    with one_state_in_subqueries():
        read = list_files(table, _partitions_of(table, select(table)))
    # Once more, because files that came after the first time were not listed.
    pruned = select(table)
    if new := [partition for partition in _partitions_of(table, pruned) if partition.id not in read]:
        raise overtaken(table, partition_path(table.key_names, new[0].values))
    return pruned.frame, read


def _partitions_of(table: Table, pruned: PrunedQuery) -> list[Partition]:
    own = (scan.partitions for scan in pruned.tables if scan.table == table.full_name)
    return list({partition.id: partition for partition in chain.from_iterable(own)}.values())


def delete_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    where: str,
    *,
    with_hidden: bool = False,
    change: str = "delete",
    row_count: int | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Delete the rows that meet a condition, in one operation; a repeated call returns the same report.

    Args:
        where: A Spark SQL condition on the table's columns, which may read other tables.
        with_hidden: Delete them from quarantined partitions, too, which stay quarantined; not for tables stored as
            Iceberg.
        change: Its name in the journal.
        row_count: The number of these rows, for the journal.

    Returns:
        The report of `overwrite_rows`; `partitions_replaced` have rows left.

    Raises:
        RefusedStatementError: The condition uses what is not allowed.
        LiteralTypeError: It compares a column with a string that is not a value of the column's type.
        CatalogError: See `overwrite_rows`.
    """
    definition = _changeable(catalog, table)
    check(spark, where, is_repeatable=True)
    check_literals(spark, definition, where)
    request = {"change": change, "where": where, **({} if row_count is None else {"rows": row_count})}
    if definition.is_iceberg:
        return iceberg_changes.delete(
            spark, catalog, _begin(catalog, operation_id, definition, request, requested_by), where
        )
    if definition.scheme is not None:
        operation = _begin(catalog, operation_id, definition, request, requested_by)
        return _of_scheme(operation, lambda: scheme_changes.delete(spark, catalog, operation, where))

    def prepare(reserved: Table) -> NewRows:
        current, state = current_files(catalog, reserved)
        concerned, keys = _concerned(spark, catalog, current, where)
        if with_hidden and state is None:
            concerned += _hidden_concerned(spark, catalog, current, where)
        read = list_files(current, concerned)
        rows = rows_without(spark, catalog, current, rows_of(spark, catalog, current, concerned, state), where)
        return NewRows(current, *shaped_rows(current, rows), concerned, state=state, where=keys, read=read)

    return _change(spark, catalog, operation_id, definition, request, prepare, requested_by)


def rows_with(spark: SparkSession, catalog: Catalog, table: str, where: str) -> int:
    """Return the number of a table's rows that meet a condition.

    Raises:
        RefusedStatementError, LiteralTypeError, UnsupportedChangeError: As for `delete_rows`.
    """
    definition = _changeable(catalog, table)
    check_alone(spark, where, without=RANDOM_FUNCTIONS)
    check_literals(spark, definition, where)
    sql = f"SELECT count(*) FROM {quoted(definition.database)}.{quoted(definition.name)} WHERE ({where}\n)"
    return int(prune_query(spark, sql, catalog=catalog, untrusted=sql).frame.collect()[0][0])


def update_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    assignments: Mapping[str, str],
    where: str,
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Update the rows that meet a condition, in one operation; a repeated call returns the same report.

    Args:
        assignments: Column → Spark SQL expression of its new value, over the old values. Rows whose partition keys are
            set move.
        where: As for `delete_rows`.

    Raises:
        InvalidRowsError: A column does not exist, or a value does not fit its column.
        ConflictError: Rows move to a partition that is quarantined.
        CatalogError: See `delete_rows`.
    """
    definition = _changeable(catalog, table)
    check_assignments(definition, assignments)
    check(spark, where, is_repeatable=True)
    for name, expression in assignments.items():
        check(spark, expression, is_repeatable=name in definition.key_names)
    for expression in (*assignments.values(), where):
        check_literals(spark, definition, expression)
    request = {"change": "update", "where": where, "assignments": dict(assignments)}
    if definition.is_iceberg:
        operation = _begin(catalog, operation_id, definition, request, requested_by)
        return iceberg_changes.update(spark, catalog, operation, assignments, where)
    if definition.scheme is not None:
        operation = _begin(catalog, operation_id, definition, request, requested_by)
        return _of_scheme(operation, lambda: scheme_changes.update(spark, catalog, operation, assignments, where))

    def prepare(reserved: Table) -> NewRows:
        return _updated(spark, catalog, reserved, assignments, where)

    return _change(spark, catalog, operation_id, definition, request, prepare, requested_by)


def compact_partitions(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    partitions: Sequence[Partition],
    *,
    target_bytes: int | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Write the rows of partitions to fewer and larger files, in one operation; repeated, return the same report.

    Args:
        target_bytes: The approximate size of the new files; None for the table's setting.

    Returns:
        The report of `overwrite_rows`, with `files_before`.

    Raises:
        CatalogError: See `overwrite_rows`.
    """
    definition = _changeable(catalog, table)
    target = target_bytes or target_file_bytes(definition)
    chosen = {partition.id for partition in partitions}

    def prepare(reserved: Table) -> NewRows:
        current, state = current_files(catalog, reserved)
        # Others may have dropped or renamed some since they were chosen.
        found = catalog.batch_get_partitions(table, [partition.values for partition in partitions]).partitions
        kept = [partition for partition in found if partition.id in chosen]
        read = list_files(current, kept)
        rows = shaped_rows(current, rows_of(spark, catalog, current, kept, state))
        # The writer of tables stored as Iceberg goes by the property.
        return NewRows(
            with_target_file_bytes(current, target), *rows, kept, state=state, is_serializable=False, read=read
        )

    files, size = (sum(count or 0 for count in counts) for counts in _counts(partitions))
    # Journaled for the policy's limit of a day, and because the counts of the partitions change.
    request = {"change": COMPACT, "partitions": len(partitions), "files": files, "bytes": size}
    with changed_settings(spark, size_settings(target)):
        report = _change(spark, catalog, operation_id, definition, request, prepare, requested_by)
    return {**report, "files_before": catalog.operations.get(operation_id).request["files"]}


def _counts(partitions: Sequence[Partition]) -> tuple[list[int | None], list[int | None]]:
    return [partition.file_count for partition in partitions], [partition.size_bytes for partition in partitions]


def compact_scheme_partitions(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    partition_ids: Collection[int] | None = None,
    *,
    target_bytes: int | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Write the rows of small files to fewer and larger ones, in one operation; repeated, return the same report.

    Args:
        table: A table with a partition scheme.
        partition_ids: The partitions whose files are compacted; None for all.
        target_bytes: As for `compact_partitions`.

    Returns:
        The report: `files_before` and `files`, and `partitions_replaced`, those that have other files.

    Raises:
        CatalogError: See `overwrite_rows`.
    """
    definition = _changeable(catalog, table)
    target = target_bytes or target_file_bytes(definition)
    files = files_to_compact(catalog.scan_files(table).files, target, partition_ids)
    request = {
        "change": COMPACT,
        "partition_ids": None if partition_ids is None else sorted(partition_ids),
        # As of `compact_partitions`.
        "partitions": len({file.partition_id for file in files}),
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }
    operation = _begin(catalog, operation_id, definition, request, requested_by)
    return _of_scheme(operation, lambda: scheme_changes.compact(spark, catalog, operation, partition_ids, target))


def append_to_iceberg(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    frame: DataFrame,
    *,
    request: Mapping[str, Any] | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Add rows to an Iceberg table, as `append_rows` does to others; a repeated call returns the same report."""
    request = {"change": "append", **(request or {})}
    operation, _ = begin_change(catalog, operation_id, table, request, requested_by)
    return iceberg_changes.write(spark, catalog, operation, frame)


def truncate_iceberg(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    values: Mapping[str, str | None],
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Delete all rows of an Iceberg table, or those of the partitions with some values, without reading them."""
    request = {"change": "truncate", "values": dict(values)}
    operation, _ = begin_change(catalog, operation_id, table, request, requested_by)
    return iceberg_changes.delete(spark, catalog, operation, None, values)


def compact_iceberg(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    values: Mapping[str, str | None],
    *,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Compact an Iceberg table, or its partitions with some values, by Iceberg's own procedure."""
    request = {"change": COMPACT, "values": dict(values)}
    operation, _ = begin_change(catalog, operation_id, table, request, requested_by)
    return iceberg_changes.compact(spark, catalog, operation, values)


def _begin(
    catalog: Catalog, operation_id: str, table: Table, request: Mapping[str, Any], requested_by: str | None
) -> Operation:
    """Journal a change, which reserves the table."""
    kind = OperationKind.CHANGE_ROWS
    return catalog.operations.begin(
        operation_id, kind, table.full_name, request, is_exclusive=True, requested_by=requested_by
    )


def begin_change(
    catalog: Catalog, operation_id: str, table: str, request: Mapping[str, Any], requested_by: str | None
) -> tuple[Operation, Table]:
    """Journal a change of a table, which reserves it.

    Raises:
        UnsupportedChangeError: The table has no partition keys.
        OperationConflictError: Another operation works on the table.
    """
    definition = _changeable(catalog, table)
    return _begin(catalog, operation_id, definition, request, requested_by), definition


def _of_scheme(operation: Operation, change: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Make a change of a table with a partition scheme; return its report, in the words of other tables' reports.

    Args:
        change: Called again, in another attempt, if another engine has changed meanwhile what it has read.
    """
    report = dict(operation.report[CHANGE]) if operation.is_committed else planned_again(change)
    files = {"files": report["files_written"], "bytes": report["bytes_written"]}
    return {"rows": report.get("rows_loaded", 0), **files, "partitions_replaced": 0, "partitions_removed": 0, **report}


def _change(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: Table,
    request: Mapping[str, Any],
    prepare: Callable[[Table], NewRows],
    requested_by: str | None,
) -> dict[str, Any]:
    """Journal a change, which reserves the table, and publish the rows that it prepares then."""
    operation = _begin(catalog, operation_id, table, request, requested_by)
    return publish_rows(spark, catalog, operation, CHANGE, table, one_state_in_subqueries()(prepare))


def _changeable(catalog: Catalog, table: str) -> Table:
    definition = catalog.get_table(table)
    if definition.scheme is not None:
        return definition
    if definition.is_iceberg:
        return with_live_columns(definition)
    refuse_others(definition)
    if not definition.partition_keys:
        raise UnsupportedChangeError(
            f"table {definition.full_name} has no partition keys, and its rows are replaced partition by partition; "
            "write the rows to a new table instead"
        )
    return definition


def _updated(
    spark: SparkSession, catalog: Catalog, table: Table, assignments: Mapping[str, str], where: str
) -> NewRows:
    """Return the rows of partitions after an update, with those of partitions to which it moves rows."""
    table, state = current_files(catalog, table)
    check_assignments(table, assignments)
    concerned, keys_where = _concerned(spark, catalog, table, where)
    moves_rows = bool(assignments.keys() & set(table.key_names))
    read = None if moves_rows else list_files(table, concerned)
    before = rows_of(spark, catalog, table, concerned, state)
    rows, columns = rows_updated(spark, catalog, table, before, assignments, where)
    if not moves_rows:
        return NewRows(table, rows, columns, concerned, state=state, where=keys_where, read=read)
    keys = [checked.value.alias(checked.column.name) for checked in columns if checked.column.name in table.key_names]
    known = {partition.id for partition in concerned}
    targets = partitions_among(catalog, table, identities_of_rows(table, rows.select(*keys)))
    every = [*concerned, *(partition for partition in targets if partition.id not in known)]
    read = list_files(table, every)
    rows, columns = rows_updated(
        spark, catalog, table, rows_of(spark, catalog, table, every, state), assignments, where
    )
    return NewRows(table, rows, columns, every, state=state, where=keys_where, read=read)


def _concerned(spark: SparkSession, catalog: Catalog, table: Table, where: str) -> tuple[list[Partition], str | None]:
    """Return the partitions that have rows which meet a condition, and a filter on keys that all such rows meet."""
    keys = ", ".join(map(quoted, table.key_names))
    sql = f"SELECT DISTINCT {keys} FROM {quoted_table(table)} WHERE ({where}\n)"
    pruned = prune_query(spark, sql, catalog=catalog, untrusted=sql)
    keys_where = pruned.tables[0].where if pruned.tables else None
    matching = identities_of_rows(table, pruned.frame)
    concerned = partitions_among(catalog, table, matching, keys_where)
    refuse_missing(table, matching, concerned)
    log.info("%s: the change concerns %d partition(s)", table.full_name, len(concerned))
    return concerned, keys_where


def _hidden_concerned(spark: SparkSession, catalog: Catalog, table: Table, where: str) -> list[Partition]:
    """Return the quarantined partitions that have rows which meet a condition."""
    hidden = list(catalog.get_partitions(table.full_name, state=PartitionState.QUARANTINED))
    if not hidden:
        return []
    judged = with_hits(spark, catalog, table, rows_of(spark, catalog, table, hidden, None), where)
    encoder, matching = ValueEncoder(table), identities_of_rows(table, judged.where(f.col(quoted(IS_HIT))))
    return [partition for partition in hidden if encoder.identity(partition.values) in matching]
