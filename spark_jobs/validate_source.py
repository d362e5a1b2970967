"""Validation of a load: parse the source files and check their partitions before anything is written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, IndexDefinition, NewPartition, Table
from catalog.errors import InvalidPartitionError, NotFoundError, RefusedPartition, SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.model import ICEBERG, PARTITION_ID, Column, FileFormat, IndexState, LoadMode, PartitionIndex, SetAsideFile
from catalog.model.identifiers import TableName
from catalog.operations.job_requests import CREATED_TABLE, SKIP, ValidateSourceJob
from catalog.operations.records import OperationState
from catalog.schemes.model import DEFAULT_PARTITION, SchemeType
from catalog.settings.load_keys import CHANGING_FUNCTIONS
from catalog.tables.checks import require_keys_of_new, require_loadable
from catalog.tables.evolution import Evolution
from spark_jobs.changing.changed_rows import check_alone
from spark_jobs.queries.checked_plans import check_analysed
from spark_jobs.reading.bad_files import (
    BadFile,
    GoodFiles,
    NoGoodFilesError,
    Persist,
    bad_among,
    cached,
    count_rows,
    good_files,
    parsed_once,
    partitions_of,
    place_names,
)
from spark_jobs.reading.bad_rows import BadRow, unreadable_lines, with_places
from spark_jobs.reading.discards import may_discard
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.source_checks import FILE
from spark_jobs.reading.source_keys import refuse_missing_keys
from spark_jobs.reading.sources import Source, read_source, source_errors
from spark_jobs.sessions.kept_rows import KeptRows, keeping
from spark_jobs.sessions.session import run_job

_SHOWN = 20
_ALL_OR_NONE = "With mode `replace`, no file is set aside, because its partitions would lose their rows in other files"

log = logging.getLogger("spark_jobs.validate_source")


def validate_source(spark: SparkSession, catalog: Catalog, job: ValidateSourceJob) -> dict[str, Any]:
    """Check a load; create its table and indexes if the table does not exist and this is no dry run.

    With `bad_files: skip`, files that cannot be loaded are set aside: the catalog records them, and the later steps
    leave them out.

    Returns:
        The report: files, rows and partitions that would be added; the columns of a new table whose types are inferred
        with these types; whether the load has created the table (`created_table`); what the contract changes of the
        table (`evolution`), and what it leaves out (`discarded`); the files that are set aside with their first bad
        rows; and the partitions that the indexes refuse.

    Raises:
        SourceFileError: A file cannot be parsed; the message names it and the line. Or the types of a new table are
            to be inferred from files without rows. Or files without rows would replace all rows of a table.
        InvalidTableError: The table is new, and the request names no partition keys.
        InvalidPartitionError: An index does not admit a partition, and the request does not say to skip it.
        PartitionAlreadyExistsError: The table has one of the partitions, and the mode is `new`.
        RefusedStatementError, UnsupportedChangeError: The expression of a key is not allowed.
    """
    operation = catalog.operations.get(job.operation_id)
    if operation.is_committed:
        return dict(operation.report.get(job.step, {}))
    files = catalog.loading.discovered_files(operation)
    table = _existing_table(catalog, job.table)
    if table is None:
        require_keys_of_new(job.table, job.keys)
    keys = list(job.key_types if table is None else place_names(table))
    for expression in job.key_expressions.values():
        check_alone(spark, expression, without=CHANGING_FUNCTIONS)
    to_be = partial(_table_to_be, catalog, job, table)
    with keeping(job.operation_id) as kept, cached() as persist:
        with source_errors():
            if job.bad_files == SKIP and job.mode != LoadMode.REPLACE:
                good = _good_files(spark, catalog, job, files, table, to_be, persist, kept)
            else:
                good = _all_files(spark, job, files, table, keys, persist, kept)
            source, partitions = good.source, good.partitions
            _check_keys(spark, job, source, partitions, table)
        known, (table, indexes) = table, to_be(source)
        evolution = Evolution() if known is None else Evolution.between(known, table)
        report = {
            "files": len(files) - len(good.bad),
            "missing_columns": list(source.missing),
            "set_aside": _reported(good.bad, good.shown),
            "discarded": good.discard_report(),
            **_check(catalog, job, table, indexes, partitions, source),
        }
        inferred = [] if table.id else _inferred(good, job, report["rows"])
        if job.dry_run or inferred or evolution or good.bad:
            # The files that are written are others, or are read with other types.
            kept.drop()
    _log(table, good, report)
    if evolution:
        log.info("%s: with the load, the table gets %s", table.full_name, evolution)
    if inferred:
        log.info("%s is new; types inferred from its files: %s", table.full_name, ", ".join(inferred))
    if job.dry_run:
        with catalog.storage.write() as connection:
            catalog.operations.guard(connection, job.operation_id, job.step, job.attempt)
            catalog.operations.advance(connection, job.operation_id, OperationState.CLEANED)
    else:
        if not table.id:
            table = _create_table(catalog, job, table)
        _set_aside(catalog, job, table, good.set_aside(files))
    is_created = known is None and not job.dry_run
    return {**report, "inferred_columns": inferred, "evolution": evolution.as_json(), CREATED_TABLE: is_created}


def _check_keys(
    spark: SparkSession, job: ValidateSourceJob, source: Source, partitions: DataFrame, table: Table | None
) -> None:
    """Refuse partition keys that are computed from the name of a user, or that the files do not have."""
    if job.key_expressions:
        check_analysed(spark, source.rows)
    keys = list(job.key_types if table is None else table.placing_columns)
    if not partitions.where(_may_lack_keys(table, keys)).isEmpty():
        refuse_missing_keys(spark, source, job, keys)


def _may_lack_keys(table: Table | None, keys: Sequence[str]) -> str:
    """Return the condition of the partitions that have the rows with null keys."""
    if table is not None and table.scheme is not None:
        return f"{PARTITION_ID} = {DEFAULT_PARTITION}"
    return " OR ".join(f"`{key}` IS NULL" for key in keys) or "false"


def _log(table: Table, good: GoodFiles, report: Mapping[str, Any]) -> None:
    """Log what a load would add, and what it leaves out."""
    log.info(
        "%s: %d files would add %d partitions with %d rows; %d files are set aside, %d partitions are refused",
        *(table.full_name, report["files"], report["partitions"], report["rows"], len(good.bad), report["refused"]),
    )
    for row in good.shown:
        log.warning("%s: set aside %s", table.full_name, row)
    if good.source.missing:
        log.warning("%s: files lack %s, which is null in their rows", table.full_name, ", ".join(good.source.missing))
    if (discarded := report["discarded"])["files"]:
        log.warning(
            "%s: the contract leaves out %d rows and %d values of %d files; some are %s",
            *(table.full_name, discarded["rows"], discarded["values"], discarded["files"], discarded["examples"]),
        )


def _all_files(
    spark: SparkSession,
    job: ValidateSourceJob,
    files: Sequence[FileInfo],
    table: Table | None,
    keys: Sequence[str],
    persist: Persist,
    kept: KeptRows,
) -> GoodFiles:
    """Return all files, and the partitions of their rows.

    Raises:
        SourceFileError: A line cannot be parsed, or a file cannot be read.
    """
    source = read_source(spark, files, job, table)
    if source.refused:
        path, reason = next(iter(source.refused.items()))
        raise SourceFileError(f"source {path} {reason}. {_ALL_OR_NONE}")
    # By file, too, where a report counts what is left out of each.
    by_file = may_discard(source)
    parsed = parsed_once(source, kept, keys, by_file=by_file)
    counted = persist(count_rows(parsed, keys, *([f.col(FILE)] if by_file else [])))
    if bad := counted.agg(f.sum("bad_count")).first()[0]:  # type: ignore[index]
        error = unreadable_lines(source, bad)
        raise error if job.bad_files != SKIP else SourceFileError(f"{error}. {_ALL_OR_NONE}")
    partitions = counted.select(*map(quoted, keys), "row_count")
    return GoodFiles(source, persist(partitions_of(counted, keys)) if by_file else partitions, counted)


def _good_files(
    spark: SparkSession,
    catalog: Catalog,
    job: ValidateSourceJob,
    files: Sequence[FileInfo],
    table: Table | None,
    to_be: Callable[[Source], tuple[Table, list[PartitionIndex]]],
    persist: Persist,
    kept: KeptRows,
) -> GoodFiles:
    """Return the files that can be loaded.

    Raises:
        SourceFileError: No file can be loaded; they are set aside if the table exists.
    """
    try:
        changed = catalog.loading.changed_files(catalog.operations.get(job.operation_id))
        return good_files(spark, files, job, table, to_be, persist, kept, changed)
    except NoGoodFilesError as error:
        if table is not None and not job.dry_run:
            _set_aside(catalog, job, table, bad_among(files, error.bad, error.shown))
        raise


def _set_aside(catalog: Catalog, job: ValidateSourceJob, table: Table, files: Sequence[SetAsideFile]) -> None:
    catalog.loading.set_aside(table, (job.operation_id, job.step, job.attempt), files, asdict(job))


def _reported(bad: Mapping[str, BadFile], shown: Sequence[BadRow]) -> dict[str, Any]:
    """Return the part of the report about files that are set aside: their number, their bad rows, and some of these."""
    row_count = sum(file.rows or 0 for file in bad.values())
    return {"files": len(bad), "rows": row_count, "problems": [row.as_json() for row in shown]}


def _inferred(good: GoodFiles, job: ValidateSourceJob, row_count: int) -> list[str]:
    """Return the columns of a new table whose types the request does not declare, as `name type`.

    Raises:
        SourceFileError: There are such columns, and no rows.
    """
    inferred = [column for column in good.source.columns if column.name not in job.column_types]
    if inferred and not row_count:
        names = ", ".join(column.name for column in inferred)
        raise SourceFileError(
            f"table {job.table} is new, and its {len(good.source.files):,} source file(s) have no rows to infer types "
            f"from; load files with rows, or name in `columns` the types of {names}"
        )
    return [f"{column.name} {column.type}" for column in inferred]


def _existing_table(catalog: Catalog, name: str) -> Table | None:
    try:
        table = catalog.get_table(name)
    except NotFoundError:
        return None
    require_loadable(table)
    return table


def _table_to_be(
    catalog: Catalog, job: ValidateSourceJob, table: Table | None, source: Source
) -> tuple[Table, list[PartitionIndex]]:
    """Return the target table and its indexes; the table's id is 0 if it is not in the catalog yet."""
    if table is not None:
        return source.table or table, [
            index for index in catalog.get_partition_indexes(job.table) if index.state is not IndexState.FAILED
        ]
    name = TableName.parse(job.table)
    columns = tuple(Column(column.name, column.type) for column in source.columns)
    keys = tuple(Column(key, text) for key, text in job.key_types.items())
    indexes = [PartitionIndex(index, tuple(names), IndexState.CREATING) for index, names in job.indexes.items()]
    file_format = FileFormat.PARQUET if job.format == ICEBERG else FileFormat(job.format)
    return Table(name.database, name.name, columns, keys, file_format, ""), indexes


def _check(
    catalog: Catalog,
    job: ValidateSourceJob,
    table: Table,
    indexes: list[PartitionIndex],
    partitions: DataFrame,
    source: Source,
) -> dict[str, Any]:
    if table.scheme is not None:
        # Each value has a partition, so none is refused.
        row_counts = [row_count for _, row_count in partitions.collect()]
        if not sum(row_counts) and job.mode == LoadMode.REPLACE and table.scheme.type is SchemeType.HASH:
            raise SourceFileError(
                f"the source files have no rows, and mode replace would leave table {table.full_name} without any, "
                "because its partitions are of type HASH; nothing was loaded. Deliver the rows, or use TRUNCATE TABLE"
            )
        return {"rows": sum(row_counts), "partitions": len(row_counts), "refused": 0, "refused_reasons": []}
    counts, mode = {"rows": 0, "partitions": 0}, LoadMode.of(job.mode, table)

    def new_partitions() -> Iterator[NewPartition]:
        for *values, row_count in partitions.toLocalIterator():
            counts["rows"] += row_count
            counts["partitions"] += 1
            yield NewPartition(values, row_count=row_count)

    refused_count, shown = 0, list[RefusedPartition]()
    for refused in catalog.loading.check(table, indexes, new_partitions(), mode):
        refused_count += 1
        if len(shown) < _SHOWN:
            shown.append(refused)
    if shown:
        with source_errors():
            shown = with_places(source, shown)
    if refused_count and job.invalid_partitions == "fail":
        raise InvalidPartitionError(table.full_name, shown, count=refused_count)
    return {**counts, "refused": refused_count, "refused_reasons": [str(partition) for partition in shown]}


def _create_table(catalog: Catalog, job: ValidateSourceJob, table: Table) -> Table:
    catalog.create_database(table.database, if_not_exists=True)
    return catalog.create_table(
        table.full_name,
        columns=table.columns,
        partition_keys=table.partition_keys,
        format=job.format,
        indexes=[IndexDefinition(name, tuple(keys)) for name, keys in job.indexes.items()],
    )


if __name__ == "__main__":
    raise SystemExit(run_job(ValidateSourceJob, validate_source))
