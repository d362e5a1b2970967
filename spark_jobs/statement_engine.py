"""Spark engine of SQL statements, on a session that is started on first use."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog import Catalog, Partition, PartitionIndex, Table
from catalog.advice.profile import PartitionSpread, TableProfile
from catalog.errors import SourceFileError
from catalog.files.filesystem import FileInfo
from catalog.loading.source_files import STATEMENT_FILES
from catalog.migration.requests import MigrationRequest
from catalog.model import Column
from catalog.operations.job_requests import BuildPartitionIndexJob, request_type
from catalog.operations.records import Operation, OperationKind
from catalog.rebalancing.changes import PartitionChange
from catalog.schemes.model import Scheme
from catalog.settings.environment import spark_packages
from catalog.settings.places import allowed_files
from catalog.statements.engine import NewOperation
from catalog.statements.model import MergeRows
from catalog.statements.results import RowStream, StatementResult
from spark_jobs.build_partition_index import build_partition_index
from spark_jobs.changing.forgetting import forget_rows
from spark_jobs.changing.merge_statement import merge
from spark_jobs.changing.row_changes import (
    append_to_iceberg,
    compact_iceberg,
    compact_partitions,
    compact_scheme_partitions,
    delete_rows,
    overwrite_rows,
    truncate_iceberg,
    update_rows,
)
from spark_jobs.migrate import migrate
from spark_jobs.queries.advising import profile_table, spread_table
from spark_jobs.queries.checked_plans import check_syntax
from spark_jobs.queries.explaining import explain_query
from spark_jobs.queries.query import PrunedQuery, prune_query
from spark_jobs.queries.table_names import may_read, needs_packages, table_of_file
from spark_jobs.queries.views import expression_with_views, merge_with_views, with_views
from spark_jobs.reading.bad_rows import good_rows, naming_bad_rows
from spark_jobs.reading.source_keys import refuse_missing_keys
from spark_jobs.reading.sources import read_source, source_errors
from spark_jobs.rebalance import rebalance
from spark_jobs.rows.statement_columns import as_rows_of, from_text, table_column
from spark_jobs.run_jobs import job_function
from spark_jobs.sessions.answers import answer_of, batches_of, engine_errors, row_errors, stream_of
from spark_jobs.sessions.kept_rows import share
from spark_jobs.sessions.local_session import start_session, stop_session
from spark_jobs.sessions.packages import has_packages
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.load_options import reloads, source_job, with_parsed_keys
from spark_jobs.writing.scheme_loading import load_rows
from spark_jobs.writing.value_loading import append_rows

_NAME = "calve sql"

Item = TypeVar("Item")


class SparkEngine:
    """Engine that runs statements for `catalog.statements`; the entry point `calve.engine` names it."""

    def __init__(self, catalog: Catalog, spark: SparkSession | None = None) -> None:
        """Use a catalog and the session of a job; without a session, the engine starts its own."""
        self._catalog = catalog
        self._spark = spark
        self._is_own = spark is None

    @property
    def spark(self) -> SparkSession:
        """The session, started on first use.

        Raises:
            EngineUnavailableError: Spark does not start.
        """
        if self._spark is None:
            self._spark = start_session(_NAME, self._catalog.storage.url)
        return self._spark

    def _spark_with_packages(self) -> SparkSession:
        """Return the session; restart the engine's own session with packages if it cannot read Iceberg and Avro."""
        if self._is_own and (self._spark is None or not has_packages(self._spark, avro=True)):
            if self._spark is not None:
                stop_session(self._spark)
                self._spark = None
            self._spark = start_session(_NAME, self._catalog.storage.url, spark_packages(avro=True))
        return self.spark

    def close(self) -> None:
        """Stop the session, if it is the engine's own."""
        if self._spark is not None and self._is_own:
            self._spark.stop()
            self._spark = None

    # --- reading ------------------------------------------------------------------------------------------------

    def select(self, query: str, database: str) -> StatementResult:
        """Return the result of a SELECT."""
        with engine_errors(query, self._table_of(query, database)):
            return answer_of(self._frame(query, database))

    def stream(self, query: str, database: str) -> RowStream:
        """Return the rows of a SELECT, of which one of Spark's partitions is held at a time."""
        table_of = self._table_of(query, database)
        with engine_errors(query, table_of):
            frame = self._frame(query, database)
            return RowStream(tuple(frame.columns), _translated(stream_of(frame), query, table_of))

    def stream_batches(self, query: str, database: str) -> pa.RecordBatchReader:
        """Return the rows of a SELECT as Arrow's batches."""
        table_of = self._table_of(query, database)
        with engine_errors(query, table_of):
            schema, batches = batches_of(self._frame(query, database))
        return pa.RecordBatchReader.from_batches(schema, _translated(batches, query, table_of))

    def cancel(self) -> None:
        """Cancel the running jobs of the session."""
        if self._spark is not None:
            self._spark.sparkContext.cancelAllJobs()

    def explain(self, query: str, database: str) -> StatementResult:
        """Return which partitions and files a SELECT would read, and how its joins would be done."""
        with engine_errors(query):
            return explain_query(self._catalog, self._pruned(query, database)).as_result()

    def _table_of(self, query: str, database: str) -> Callable[[str], str | None]:
        return partial(table_of_file, self._catalog, query, database)

    def _frame(self, query: str, database: str) -> DataFrame:
        return self._pruned(query, database).frame

    def _pruned(self, query: str, database: str) -> PrunedQuery:
        sql = with_views(self._catalog, query, database)
        has_to_change = self._is_own and needs_packages(self._catalog, sql, database)
        spark = self._spark_with_packages() if has_to_change else self.spark
        # Parsed by Spark first, because it has the best error messages.
        check_syntax(spark, query)
        return prune_query(spark, sql, catalog=self._catalog, untrusted=query)

    def columns_of(self, query: str, database: str) -> tuple[Column, ...]:
        """Return the columns of a SELECT, named and typed as those of a table."""
        with engine_errors(query):
            schema = self._frame(query, database).schema
        return tuple(table_column(field, query) for field in schema)

    def profile(self, table: Table, queries: Sequence[str], database: str) -> TableProfile:
        """Return statistics of a table's columns and of its use in queries."""
        with engine_errors(f"reading {table.full_name}"):
            return profile_table(self.spark, self._catalog, table, queries, database)

    def spread(self, table: Table, scheme: Scheme) -> list[PartitionSpread]:
        """Return what each partition would contain if a table had a scheme."""
        with engine_errors(f"reading {table.full_name}"):
            return spread_table(self.spark, self._catalog, table, scheme)

    # --- adding rows --------------------------------------------------------------------------------------------

    def insert_values(
        self,
        operation: NewOperation,
        table: Table,
        rows: Sequence[Sequence[str | None]],
        *,
        overwritten: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Add rows whose values are given as strings."""
        columns = (*table.columns, *table.partition_keys)
        spark = self._session_for(table)
        schema = ", ".join(f"c{number} string" for number in range(len(columns)))
        with engine_errors(f"INSERT INTO {table.full_name}"):
            frame = spark.createDataFrame([tuple(row) for row in rows], schema)
            typed = [from_text(f.col(f"c{number}"), column) for number, column in enumerate(columns)]
            return self._add(operation, table, frame.select(*typed), overwritten)

    def insert_query(
        self,
        operation: NewOperation,
        table: Table,
        query: str,
        database: str,
        *,
        columns: Sequence[str] = (),
        values: Mapping[str, str | None] | None = None,
        overwritten: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Add the rows of a SELECT, whose columns correspond to the table's by position.

        Raises:
            InvalidRowsError: The number of columns differs.
        """
        with engine_errors(query):
            # Before the frame, because a session without Iceberg's runtime is replaced.
            self._session_for(table)

            def select(current: Table) -> PrunedQuery:
                pruned = self._pruned(query, database)
                return replace(pruned, frame=as_rows_of(current, pruned.frame, columns, values or {}))

            sql = with_views(self._catalog, query, database)
            if overwritten is None or not may_read(self._catalog, sql, database, table):
                return self._add(operation, table, select(table).frame, overwritten)
            current = self._catalog.get_table(table.full_name)
            read_from = current.metadata_location or current.live_location
            return self._add(operation, table, select(table).frame, overwritten, read_from=read_from, select=select)

    def load_data(
        self,
        operation: NewOperation,
        table: Table,
        path: str,
        options: Mapping[str, str],
        *,
        overwritten: Mapping[str, str | None] | None = None,
    ) -> Mapping[str, Any]:
        """Add the rows of files: CSV, Parquet, ORC, Avro or JSON.

        Raises:
            LocationNotAllowedError: The files are not below an allowed folder.
            SourceFileError: The files cannot be found or read, or lack columns of the table; or were loaded before, and
                their rows neither replace others nor are to be added again.
        """
        files = allowed_files(path)
        if not files:
            raise SourceFileError(f"source {path} has no files")
        job = source_job(operation.id, table, path, files, options)
        adds_again = overwritten is not None or reloads(options)
        files, warning = self._files_to_load(operation, table, path, files, adds_again=adds_again)
        request = {STATEMENT_FILES: [asdict(file) for file in files]}
        with engine_errors(f"LOAD DATA INPATH '{path}'"), source_errors():
            spark = self._spark_with_packages() if job.source_format == "avro" else self._session_for(table)
            source = read_source(spark, files, job, table)
            refuse_missing_keys(spark, source, job, table.placing_columns)
            with naming_bad_rows(source):
                rows = with_parsed_keys(good_rows(source), table, options)
                return {**warning, **self._add(operation, table, rows, overwritten, request)}

    def _files_to_load(
        self, operation: NewOperation, table: Table, path: str, files: list[FileInfo], *, adds_again: bool
    ) -> tuple[list[FileInfo], Mapping[str, str]]:
        """Return the files that LOAD DATA loads, and a warning if it leaves some out; a retry loads the same files."""
        earlier, loading = self._catalog.operations.find(operation.id), self._catalog.loading
        begun = None if earlier is None else loading.files_of_statement(earlier)
        new = files if adds_again else begun
        if new is None:
            new = loading.new_for_statement(table, path, files)
        if left := len(files) - len(new):
            return new, {"warning": f"{left:,} of {len(files):,} file(s) were loaded before, and are left out"}
        return new, {}

    def _add(
        self,
        operation: NewOperation,
        table: Table,
        frame: DataFrame,
        overwritten: Mapping[str, str | None] | None = None,
        request: Mapping[str, Any] | None = None,
        read_from: str | None = None,
        select: Callable[[Table], PrunedQuery] | None = None,
    ) -> Mapping[str, Any]:
        if overwritten is not None:
            return overwrite_rows(
                self.spark,
                self._catalog,
                operation.id,
                table.full_name,
                frame,
                values=overwritten,
                read_from=read_from,
                select=select,
                request=request,
                requested_by=operation.requested_by,
            )
        if table.scheme is None:
            append = append_to_iceberg if table.is_iceberg else append_rows
            return append(
                self.spark,
                self._catalog,
                operation.id,
                table.full_name,
                frame,
                request=request,
                requested_by=operation.requested_by,
            )
        with row_errors():
            report = load_rows(
                self.spark,
                self._catalog,
                operation.id,
                table.full_name,
                frame,
                request=request,
                requested_by=operation.requested_by,
            )
        return {**report, "rows": report["rows_loaded"]}

    # --- changing -----------------------------------------------------------------------------------------------

    def delete_rows(
        self, operation: NewOperation, table: Table, where: str, database: str | None = None
    ) -> Mapping[str, Any]:
        """Delete the rows of a table that meet a condition."""
        with engine_errors(where, lambda _: table.full_name):
            condition = expression_with_views(self._catalog, where, database or table.database)
            return delete_rows(
                self._session_for(table, condition),
                self._catalog,
                operation.id,
                table.full_name,
                condition,
                requested_by=operation.requested_by,
            )

    def update_rows(
        self,
        operation: NewOperation,
        table: Table,
        assignments: Mapping[str, str],
        where: str,
        database: str | None = None,
    ) -> Mapping[str, Any]:
        """Update the rows of a table that meet a condition."""
        with engine_errors(where, lambda _: table.full_name):
            condition, *values = (
                expression_with_views(self._catalog, expression, database or table.database)
                for expression in (where, *assignments.values())
            )
            return update_rows(
                self._session_for(table, condition, *values),
                self._catalog,
                operation.id,
                table.full_name,
                dict(zip(assignments, values, strict=True)),
                condition,
                requested_by=operation.requested_by,
            )

    def forget(self, operation: NewOperation, table: Table, where: str, *, at_once: bool) -> Mapping[str, Any]:
        """Delete the rows of a table that meet a condition, and all copies of them in its folders."""
        with engine_errors(where, lambda _: table.full_name):
            return forget_rows(
                self._session_for(table),
                self._catalog,
                operation.id,
                table.full_name,
                where,
                at_once=at_once,
                requested_by=operation.requested_by,
            )

    def merge_rows(
        self, operation: NewOperation, table: Table, statement: MergeRows, database: str
    ) -> Mapping[str, Any]:
        """Run a MERGE."""
        whole = merge_with_views(self._catalog, statement, table, database)
        with engine_errors(f"MERGE INTO {table.full_name}", lambda _: table.full_name):
            conditions = [whole.condition, *(clause.condition for clause in whole.clauses if clause.condition)]
            spark = self._session_for(table, whole.source, *conditions)
            return merge(spark, self._catalog, operation.id, whole, requested_by=operation.requested_by)

    def compact(self, operation: NewOperation, table: Table, partitions: Sequence[Partition]) -> Mapping[str, Any]:
        """Write the rows of partitions to fewer and larger files."""
        with engine_errors(f"ALTER TABLE {table.full_name} COMPACT", lambda _: table.full_name):
            return compact_partitions(
                self._session_for(table),
                self._catalog,
                operation.id,
                table.full_name,
                partitions,
                requested_by=operation.requested_by,
            )

    def compact_scheme(
        self, operation: NewOperation, table: Table, partition_ids: Collection[int] | None
    ) -> Mapping[str, Any]:
        """Write the rows of small files of a table with a partition scheme to fewer and larger ones."""
        with engine_errors(f"ALTER TABLE {table.full_name} COMPACT", lambda _: table.full_name):
            return compact_scheme_partitions(
                self._session_for(table),
                self._catalog,
                operation.id,
                table.full_name,
                partition_ids,
                requested_by=operation.requested_by,
            )

    def truncate(self, operation: NewOperation, table: Table, values: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Delete all rows of an Iceberg table, or of its partitions with some values."""
        with engine_errors(f"TRUNCATE TABLE {table.full_name}"):
            spark, requested_by = self._session_for(table), operation.requested_by
            return truncate_iceberg(
                spark, self._catalog, operation.id, table.full_name, values, requested_by=requested_by
            )

    def compact_iceberg(
        self, operation: NewOperation, table: Table, values: Mapping[str, str | None]
    ) -> Mapping[str, Any]:
        """Compact an Iceberg table, or its partitions with some values, by Iceberg's own procedure."""
        with engine_errors(f"ALTER TABLE {table.full_name} COMPACT", lambda _: table.full_name):
            spark, requested_by = self._session_for(table), operation.requested_by
            return compact_iceberg(
                spark, self._catalog, operation.id, table.full_name, values, requested_by=requested_by
            )

    def run_step(
        self, operation: Operation, step: str, request: Mapping[str, Any], conf: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Run a step of a load; see `catalog.statements.engine.Engine`."""
        with engine_errors(step):
            is_needed = self._catalog.loading.needs_packages({**request, "table": operation.table})
            if self._is_own and self._spark is None:
                packages = spark_packages(avro=True) if is_needed else ()
                self._spark = start_session(_NAME, self._catalog.storage.url, packages, conf)
            spark = self._spark_with_packages() if is_needed else self.spark
            with attempt_here(self._catalog, operation, step) as attempt:
                fields = {**request, "operation_id": operation.id, "step": step, "attempt": attempt}
                job = request_type(step).from_json(json.dumps(fields))
                result = job_function(step)(share(spark), self._catalog, job)
                if result is not None:
                    self._catalog.operations.finish_job(operation.id, step, attempt, result)
        return dict(self._catalog.operations.get(operation.id).report[step])

    def _session_for(self, table: Table, *expressions: str) -> SparkSession:
        """Return the session, with packages if the table needs them, or one in a subquery of an expression."""
        is_needed = table.needs_packages or any(
            needs_packages(self._catalog, f"SELECT (\n{expression}\n)", table.database) for expression in expressions
        )
        return self._spark_with_packages() if is_needed else self.spark

    def rebalance(self, operation: NewOperation, table: Table, change: PartitionChange) -> Mapping[str, Any]:
        """Make a change of a table's partitions that moves rows."""
        with engine_errors(f"ALTER TABLE {table.full_name}"):
            return rebalance(
                self._session_for(table),
                self._catalog,
                operation.id,
                table.full_name,
                change,
                requested_by=operation.requested_by,
            )

    def migrate(
        self,
        operation: NewOperation,
        table: Table,
        request: MigrationRequest,
        *,
        verified_partitions: int | None = None,
    ) -> Mapping[str, Any]:
        """Migrate a Hive table to Iceberg."""
        with engine_errors(f"migrating {table.full_name}"):
            return migrate(
                self._spark_with_packages() if request.verify else self.spark,
                self._catalog,
                operation.id,
                table.full_name,
                request,
                verified_partitions=verified_partitions,
                requested_by=operation.requested_by,
            )

    def build_index(self, operation: NewOperation, table: Table, index: str) -> PartitionIndex:
        """Build a CREATING partition index with all cores."""
        name, step, operations = table.full_name, BuildPartitionIndexJob.script, self._catalog.operations
        kind, requested_by = OperationKind.BUILD_INDEX, operation.requested_by
        operations.begin(operation.id, kind, name, {"index": index}, requested_by=requested_by)
        with engine_errors(f"CREATE PARTITION INDEX {index}"), operations.attempt(operation.id, step) as attempt:
            job = BuildPartitionIndexJob(operation_id=operation.id, step=step, attempt=attempt, table=name, index=index)
            build_partition_index(self.spark, self._catalog, job)
        return self._catalog.get_partition_index(name, index)


def _translated(items: Iterator[Item], query: str, table_of: Callable[[str], str | None]) -> Iterator[Item]:
    """Yield what a query returns, and translate its errors."""
    with engine_errors(query, table_of):
        yield from items
