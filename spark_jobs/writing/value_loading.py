"""Writing of rows to tables without a partition scheme, partitioned or not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, LoadMode, Partition, Table
from catalog.datafiles.manifest import read_manifest
from catalog.errors import (
    CommitOutcomeUnknownError,
    ConflictError,
    FencedError,
    InvalidRowsError,
    VerificationFailedError,
)
from catalog.files.filesystem import Folder
from catalog.loading.replaced_folders import PartitionsRead, keep_files_read
from catalog.loading.replacing import Removed
from catalog.model.partition_names import partition_path
from catalog.operations.patience import planned_again
from catalog.operations.records import Operation, OperationKind
from catalog.operations.staging import begin_staging, read_staged
from catalog.partitions.snapshots import PartitionFiles, ReplacedFiles
from catalog.storage.values import ValueEncoder
from catalog.tables.checks import require_value_rows
from catalog.types.key_types import FloatingType, parse_key_type
from spark_jobs.reading.files import reader_errors
from spark_jobs.reading.paths import spark_path
from spark_jobs.rows.file_formats import as_stored, writer_options, writer_settings
from spark_jobs.rows.key_spellings import without_null_texts
from spark_jobs.rows.value_checks import CheckedColumn, RowCheck, first_problem, shaped_rows
from spark_jobs.sessions.session import attempt_here, require_attempt
from spark_jobs.writing.file_sizes import changed_settings
from spark_jobs.writing.snapshot_files import write_partition_files
from spark_jobs.writing.staged_files import list_staged

log = logging.getLogger("spark_jobs.writing.value_loading")

APPEND = "append_rows"
"""The step of an append's operation."""


def append_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation_id: str,
    table: str,
    frame: DataFrame,
    *,
    request: Mapping[str, Any] | None = None,
    requested_by: str | None = None,
) -> dict[str, Any]:
    """Append rows to a table, in one operation; a repeated call returns the same report.

    Existing partitions get additional files, and new ones are added with their index items, after all files are in
    place. `read_table` sees all new rows from the commit on, and none before. Other readers, which list the folder of a
    partition or of a table without partitions, may see some of the new files earlier, and the files of an interrupted
    append until the next load of the table removes them.

    If the default folder of a new partition has files that the catalog does not know, such as those of a dropped
    partition, the new partition gets another folder beside it, so that it has exactly the added rows.

    Args:
        frame: Rows with the table's columns and partition keys by name, in any order and case; a missing column is
        null.
            An empty string in a key is Hive's null.
        request: What the journal keeps of the request.

    Returns:
        The report: `rows`, `files`, `bytes`, `partitions_added` and `partitions_extended`.

    Raises:
        TableNotFoundError: The table does not exist.
        NotATableError, UnsupportedFormatError, UnsupportedChangeError: The table does not support appends.
        InvalidRowsError: The rows lack a key, have an unknown column, or a value of another type.
        InvalidPartitionError: A partition index does not admit a new partition.
        OperationConflictError: Another operation works on the table.
        ConflictError: A partition is quarantined, or was added concurrently; or another table got the name.
    """
    definition = catalog.get_table(table)
    refuse_others(definition)
    shaped_rows(definition, frame)
    operation = catalog.operations.begin(
        operation_id, OperationKind.APPEND_ROWS, table, request, is_exclusive=True, requested_by=requested_by
    )

    def prepare(current: Table) -> NewRows:
        return NewRows(current, *shaped_rows(current, frame))

    return publish_rows(spark, catalog, operation, APPEND, definition, prepare)


@dataclass(frozen=True)
class NewRows:
    """Rows to write to a table.

    Attributes:
        table: The table as it is written, in the state of which rows of it were read.
        rows, columns: As `shaped_rows` returns them.
        replaced: The partitions whose rows they replace; those without new rows are dropped. None to add the rows.
        replaces_others: Whether they also replace the rows of other partitions that exist, to which they belong.
        state: The files of a table stored as Iceberg of which the rows of `replaced` were read; None if they were not.
        where, is_serializable: As in `ReplacedFiles`.
        read_from: As in `PublishOptions`.
        read: The replaced partitions of a Hive-style table, with their files, listed before their rows were read; None
            if they were not read. With `replaces_others`, the partitions that were read, replaced or not.
    """

    table: Table
    rows: DataFrame
    columns: Sequence[CheckedColumn]
    replaced: Sequence[Partition] | None = None
    replaces_others: bool = False
    state: PartitionFiles | None = None
    where: str | None = None
    is_serializable: bool = True
    read_from: str | None = None
    read: PartitionsRead | None = None

    @property
    def replaced_files(self) -> ReplacedFiles | None:
        """The files that were read; None if whole partitions are replaced."""
        if self.state is None or self.replaced is None:
            return None
        ids = {partition.id for partition in self.replaced}
        return self.state.replaced(ids, self.where, is_serializable=self.is_serializable)


def publish_rows(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    step: str,
    table: Table,
    prepare: Callable[[Table], NewRows],
) -> dict[str, Any]:
    """Write rows and make them visible in one transaction; return the report of `Loading.publish`.

    Args:
        operation: It has reserved the table.
        table: The table as it was before the operation began.
        prepare: Returns the rows, given the table as it is since it was reserved; called once per attempt, after what
            earlier operations left has been undone. Another attempt follows if another engine or process has changed
            meanwhile what was read.

    Raises:
        PlanConflictError: Others have done so during each attempt.
        ConflictError: Another table had the name when it was reserved.
        CatalogError: See `append_rows`.
    """
    return planned_again(lambda: _publish_once(spark, catalog, operation, step, table, prepare))


def _publish_once(
    spark: SparkSession,
    catalog: Catalog,
    operation: Operation,
    step: str,
    table: Table,
    prepare: Callable[[Table], NewRows],
) -> dict[str, Any]:
    if operation.is_committed:
        job = catalog.operations.get_job(operation.id, step)
        attempt = 0 if job is None else job.attempt
        staging = catalog.loading.files_folder(table, operation, attempt)
        return catalog.loading.publish(operation.id, step, attempt, staging, is_load=False)
    with attempt_here(catalog, operation, step) as attempt:
        table = _reserved(catalog, operation, table)
        catalog.loading.discard_staging(table, (operation.id, step, attempt))
        try:
            staging = catalog.loading.files_folder(table, operation, attempt)
            new = prepare(table)
            stage_rows(spark, catalog, staging, new)
            mode = LoadMode.APPEND if new.replaced is None else LoadMode.REPLACE
            read = new.replaced_files
            replaced = new.replaced or ()
            written = staged_partitions(table, staging) if replaced else {}
            removed = partitions_without_rows(table, replaced, written)
            if not new.replaces_others:
                _refuse_others_rows(catalog, table, new, written)
            return catalog.loading.publish(
                operation.id,
                step,
                attempt,
                staging,
                is_load=False,
                mode=mode,
                removed=removed,
                replaced=read,
                read_from=new.read_from,
                replaces_others=new.replaces_others,
            )
        except (FencedError, CommitOutcomeUnknownError):
            # The files may be another attempt's, or those of a commit that succeeded.
            raise
        except Exception:
            require_attempt()
            # No other operation works on the table, so the files of this attempt are not needed.
            catalog.loading.discard_staging(table, (operation.id, step, attempt))
            raise


def _reserved(catalog: Catalog, operation: Operation, expected: Table) -> Table:
    """Return a table as it is since a running operation has reserved it, which keeps its name.

    Raises:
        TableNotFoundError: It was dropped or renamed before.
        ConflictError: Another table has got its name before.
        IcebergTableError: It has become an Iceberg table.
    """
    table = catalog.get_table(operation.table)
    if {table.id} != {expected.id, operation.table_id}:
        raise ConflictError(
            f"table {expected.full_name} was dropped or renamed, and another table got its name, while a statement "
            "began; nothing was changed. Run the statement again"
        )
    refuse_others(table)
    return table


def partitions_without_rows(table: Table, partitions: Sequence[Partition], written: Collection[bytes]) -> Removed:
    """Return those partitions for which no rows were written.

    Args:
        written: As `staged_partitions` returns them.
    """
    encoder = ValueEncoder(table)
    empty = (partition for partition in partitions if encoder.identity(partition.values) not in written)
    return {partition.id: partition.values for partition in empty}


def staged_partitions(table: Table, staging: str) -> dict[bytes, tuple[str | None, ...]]:
    """Return the partitions for which rows were written to an attempt's folder: identity → values."""
    encoder = ValueEncoder(table)
    if table.is_stored_as_iceberg:
        return {encoder.identity(values): values for values in {file.values for file in read_manifest(table, staging)}}
    return {encoder.identity(staged.values): staged.values for staged in read_staged(Folder(table.location), staging)}


def _refuse_others_rows(
    catalog: Catalog, table: Table, new: NewRows, written: Mapping[bytes, tuple[str | None, ...]]
) -> None:
    """Refuse rows of existing partitions whose own rows were not read, and would be lost.

    Raises:
        ConflictError: The rows moved to other partitions than they did when these were looked for.
    """
    encoder = ValueEncoder(table)
    read = {encoder.identity(partition.values) for partition in new.replaced or ()}
    others = [values for identity, values in written.items() if identity not in read]
    found = catalog.batch_get_partitions(table.full_name, others).partitions if others else []
    if new.state is not None:
        # Rows of partitions that other engines have added meanwhile are not replaced.
        known = {partition.id for partition in new.state.partitions}
        found = [partition for partition in found if partition.id in known]
    if found:
        raise ConflictError(
            f"rows of {table.full_name} got the partition {partition_path(table.key_names, found[0].values)} by an "
            "expression that has another value each time; nothing was changed. Run the statement again, or give the "
            "value of the partition key"
        )


def refuse_others(table: Table) -> None:
    """Refuse tables to which rows cannot be written.

    Raises:
        NotATableError, UnsupportedFormatError, InvalidRowsError: The table is one.
    """
    require_value_rows(table)
    if not table.columns:
        raise InvalidRowsError(f"table {table.full_name} has only partition keys, so rows cannot be added")


# --- the rows -------------------------------------------------------------------------------------------------------


def _written(table: Table, columns: Sequence[CheckedColumn]) -> Iterator[SparkColumn]:
    """Yield the written columns: the columns in the files' order, then the partition keys as strings for paths."""
    yield from as_stored(table, {checked.column.name: checked.value for checked in columns})
    keys = [checked for checked in columns if checked.column.name in table.key_names]
    yield from (_key_text(checked).alias(checked.column.name) for checked in keys)


def _key_text(checked: CheckedColumn) -> SparkColumn:
    """Return a key's value as Hive writes it to a path."""
    key_type = parse_key_type(checked.column.type)
    # Spark writes 0.0 and -0.0 to different folders; adding 0.0 removes the sign.
    is_float = isinstance(key_type, FloatingType)
    value = checked.value + f.lit(0.0).cast(str(key_type)) if is_float else checked.value
    return without_null_texts(value.cast("string"))


# --- staging --------------------------------------------------------------------------------------------------------


def stage_rows(
    spark: SparkSession,
    catalog: Catalog,
    staging: str,
    new: NewRows,
) -> int:
    """Write the rows, and the list of their files, to a folder; return their number.

    Raises:
        InvalidRowsError: A value does not have its column's type.
        VerificationFailedError: The files do not have as many rows as were given.
    """
    table, rows, columns = new.table, new.rows, new.columns
    keep_files_read(table, staging, new.read)
    check = RowCheck(table, first_problem(columns))
    if table.is_stored_as_iceberg:
        listed = write_partition_files(check.observe(rows), table, columns, staging)
        _compare(table, staging, check.finish(), listed)
        return listed
    written = check.observe(rows).select(*_written(table, columns))
    folder = spark_path(f"{table.location}/{begin_staging(table, staging)}")
    keys = [f.col(f"`{key}`") for key in table.key_names]
    writer = (written.hint("rebalance", *keys) if keys else written).write
    if keys:
        writer = writer.partitionBy(*table.key_names)
    with reader_errors(spark, table), changed_settings(spark, writer_settings(table)):
        writer.format(table.format).options(**writer_options(catalog, table)).save(folder)
    listed = list_staged(spark, table, staging)
    _compare(table, staging, check.finish(), listed)
    return listed


def _compare(table: Table, folder: str, given_rows: int, listed: int) -> None:
    if listed != given_rows:
        raise VerificationFailedError(
            f"table {table.full_name}: {given_rows:,} rows were given, but {listed:,} are in the files written to "
            f"{table.location}/{folder}; nothing was changed. Run the statement again"
        )
    log.info("%s: wrote %d rows to %s", table.full_name, listed, folder)
