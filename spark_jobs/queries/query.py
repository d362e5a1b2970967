"""SQL over catalog tables, each read from just the partitions that the statement needs.

Which these are, Spark's own optimizer says: the statement is planned once over tables without files, and whatever
filter arrives at a table decides about its partitions. What moves through joins, outer joins, subqueries and types is
Spark's knowledge then; here is only known how one simple condition on a partition key is said to the catalog.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

import sqlglot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from catalog import Catalog, Table
from catalog.errors import (
    ExpressionError,
    ExpressionSyntaxError,
    UnsupportedExpressionError,
)
from catalog.partitions.counting import count_visible
from catalog.types.key_types import TimestampType
from spark_jobs.queries.catalyst import Catalyst, items, kind_of
from spark_jobs.queries.checked_plans import check_analysed, check_query
from spark_jobs.queries.implied_filters import any_of, implied_filter
from spark_jobs.queries.join_regions import Source
from spark_jobs.queries.joining import join_partition_wise
from spark_jobs.queries.partition_ids import Edit, IdReferences, hidden_name
from spark_jobs.queries.table_names import end_of, named_table, start_of, table_nodes
from spark_jobs.reading.files import empty_table, table_schema
from spark_jobs.reading.iceberg import read_metadata_file
from spark_jobs.reading.tables import UTC_NAMES, PrunedTable, opened, prune_table, pruned_scan, read_scan
from spark_jobs.rows.char_columns import char_metadata
from spark_jobs.rows.placement import partition_id

log = logging.getLogger("spark_jobs.queries.query")

_MARK = "calve.occurrence"
"""Metadata of the columns of a stand-in for a table: which occurrence in the statement it is."""

_NOTHING = "false"
"""The condition of an occurrence of which no partition matters."""

_SELECTIVE = (exp.Where, exp.Join, exp.Having, exp.Qualify, exp.Limit)

_SAMPLE = re.compile(r"\s*TABLESAMPLE\s*\([^()]*\)(\s*REPEATABLE\s*\([^()]*\))?", re.IGNORECASE)


@dataclass(frozen=True)
class PrunedQuery:
    """A statement's answer, and what it reads.

    Attributes:
        frame: The answer.
        tables: Each occurrence of a catalog table in the statement, in its order; `where` is what was found out about
            the partitions that it needs. An occurrence that cannot matter is not read at all.
        joins: In words, the joins that go partition by partition.
    """

    frame: DataFrame
    tables: tuple[PrunedTable, ...]
    joins: tuple[str, ...] = ()


def query(spark: SparkSession, sql: str, *, catalog: Catalog | None = None, partition_wise: bool = True) -> DataFrame:
    """Return the answer of a SELECT over catalog tables; the same as over the whole tables, from fewer partitions.

    Tables are named `database.table`, or `table` in the session's current database (`USE`). The names of common table
    expressions and of temporary views come first, and a name that the catalog does not know is left to Spark. Of an
    Iceberg table, `database.table.snapshots` and the like are its metadata tables, as everywhere in Spark.

    The partitions are those that readers see now, and `current_date` and the like are those of now, too.

    Args:
        sql: One SELECT, in Spark's dialect.
        catalog: By default the one that `CALVE_CATALOG_URL` names.
        partition_wise: Join tables with the same partition scheme partition by partition, where that helps
            (`spark_jobs.queries.joining`).

    Raises:
        ExpressionSyntaxError: The statement cannot be read.
        UnsupportedExpressionError: It is not one SELECT.
        InvalidConfigurationError: It reads an Iceberg table, and Spark does not have Iceberg's runtime.
        CatalogError: As `read_table`.
    """
    answer = prune_query(spark, sql, catalog=catalog, partition_wise=partition_wise)
    for line in (*answer.tables, *answer.joins):
        log.info("%s", line)
    return answer.frame


def prune_query(
    spark: SparkSession,
    sql: str,
    *,
    catalog: Catalog | None = None,
    partition_wise: bool = True,
    untrusted: str | None = None,
) -> PrunedQuery:
    """Return what `query` returns, and what it reads of each table.

    Args:
        untrusted: The text that a user wrote, before views were replaced; the statement is checked then
            (`spark_jobs.queries.checked_plans`). None for a program's own.

    Raises:
        RefusedStatementError: It is untrusted, and uses what it may not.
        CatalogError: As `query`.
    """
    with opened(catalog) as source:
        statement = _Statement(spark, source, sql)
        if untrusted is not None:
            statement.check(untrusted)
        planned = statement.over(_stand_ins(spark, statement)) if statement.is_selective else None
        while True:
            conditions = _conditions(planned, statement.tables)
            pruned = [_prune(spark, source, *each) for each in zip(statement.tables, conditions, strict=True)]
            frames = [
                _with_ids(each.frame, table, number) if number in statement.id_places else each.frame
                for number, (each, table) in enumerate(zip(pruned, statement.tables, strict=True))
            ]
            frame = statement.over(frames)
            if untrusted is not None:
                check_analysed(spark, frame)
            frame = _as_of_now(frame)
            # Midnight between the two plans may have changed which partitions are meant.
            if planned is None or not _reads_clock(planned) or _conditions(planned, statement.tables) == conditions:
                break
    sources = [Source(each.frame, each.scan) for each in pruned if each.scan is not None and partition_wise]
    answer = join_partition_wise(frame, sources)
    return PrunedQuery(answer.frame, tuple(pruned), answer.joins)


def filters_on(spark: SparkSession, sql: str, seen: Table, *, catalog: Catalog | None = None) -> list[str | None]:
    """Return the filter that reaches each place where a SELECT reads a table; None where it reads all.

    Places that cannot matter to the answer are left out.

    Args:
        sql: A SELECT that somebody else wrote; it is checked.
        seen: The table as it might be: filters name its `pruning_columns`.

    Raises:
        RefusedStatementError: The SELECT uses what statements may not.
        ExpressionSyntaxError, UnsupportedExpressionError: As `query`.
    """
    with opened(catalog) as source:
        statement = _Statement(spark, source, sql)
        statement.check(sql)
        tables = [seen if each.full_name == seen.full_name else each for each in statement.tables]
        conditions = _conditions(statement.over(_stand_ins(spark, statement, tables)), tables)
    found = [each for each, table in zip(conditions, tables, strict=True) if table is seen]
    return [each for each in found if each != _NOTHING]


def _prune(spark: SparkSession, catalog: Catalog, table: Table, condition: str | None) -> PrunedTable:
    if condition == _NOTHING:
        frame = empty_table(spark, table)
        if table.scheme is not None:
            return pruned_scan(catalog.scan_files(table.full_name, _NOTHING), frame)
        total = count_visible(catalog.storage, table)
        return PrunedTable(frame, table.full_name, condition, 0, total.partitions, 0, total.files)
    try:
        return _pruned(spark, catalog, table, condition)
    except ExpressionError as error:
        log.warning("%s is read whole: %s", table.full_name, error)
        return _pruned(spark, catalog, table, None)


def _pruned(spark: SparkSession, catalog: Catalog, table: Table, condition: str | None) -> PrunedTable:
    if table.scheme is None:
        return prune_table(spark, table.full_name, condition, catalog=catalog)
    # The statement filters the rows itself.
    scan = catalog.scan_files(table.full_name, condition)
    return pruned_scan(scan, read_scan(spark, scan))


def _with_ids(frame: DataFrame, table: Table, number: int) -> DataFrame:
    assert table.scheme is not None
    return frame.withColumn(hidden_name(number), partition_id(table.scheme))


class _Statement:
    """A SELECT whose catalog tables can be replaced by DataFrames; the rest of its text stays as it is.

    An Iceberg table is read by Iceberg, which finds its files itself.

    Attributes:
        tables: The table of each other occurrence, in the order of the text.
        id_places: The numbers of the tables whose `_partition_id` it asks for (`spark_jobs.queries.partition_ids`).
        is_selective: Whether there is anything by which the optimizer could find that it does not need all rows.
    """

    def __init__(self, spark: SparkSession, catalog: Catalog, sql: str) -> None:
        self._spark = spark
        tree = _parsed(sql)
        occurrences = [
            (node, table) for node in table_nodes(tree) if (table := _catalog_table(spark, catalog, node)) is not None
        ]
        self.tables = [table for _, table in occurrences if not table.is_iceberg]
        tables = [(node, table) for node, table in occurrences if not table.is_iceberg]
        numbers = {start_of(node.parts[0]): n for n, (node, table) in enumerate(tables) if table.scheme is not None}
        references = IdReferences(sql, tree, numbers)
        self.id_places = references.places
        self.is_selective = tree.find(*_SELECTIVE) is not None
        prefix = f"calve_{uuid4().hex}"
        self._views: list[str] = []
        self._iceberg_views: dict[str, DataFrame] = {}
        edits = list(references.edits)
        unaliased = set()
        for number, (node, table) in enumerate(occurrences):
            view = f"{prefix}_{number}"
            if table.is_iceberg:
                self._iceberg_views[view] = _iceberg_frame(spark, table, node.name if node.catalog else None)
            else:
                self._views.append(view)
            start, end = start_of(node.parts[0]), end_of(node.parts[-1])
            edits.append((start, end, view))
            if not node.alias:
                # Of a metadata table, its own name comes behind the table's.
                unaliased.add((table.database, table.name, *([node.name.lower()] if node.catalog else [])))
                sample = _SAMPLE.match(sql, end)
                end = sample.end() if sample else end
                edits.append((end, end, f" AS `{node.name.lower()}`"))
        for column in tree.find_all(exp.Column):
            qualifiers = [part.name.lower() for part in column.parts[:-1]]
            for length in range(2, len(qualifiers) + 1):
                if tuple(qualifiers[:length]) in unaliased:
                    edits.append((start_of(column.parts[0]), start_of(column.parts[length - 1]), ""))
        self._text = _edited(sql, edits)

    def check(self, text: str) -> None:
        """Refuse the statement if it could read or call anything but what it may.

        Args:
            text: What the user wrote, at which errors point.

        Raises:
            RefusedStatementError, TableNotFoundError: As `spark_jobs.queries.checked_plans.check_query`.
        """
        check_query(self._spark, self._text, text, {*self._views, *self._iceberg_views})

    def over(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Return the statement's answer with a frame in the place of each table."""
        views = dict(zip(self._views, frames, strict=True)) | self._iceberg_views
        try:
            for view, frame in views.items():
                frame.createOrReplaceTempView(view)
            return self._spark.sql(self._text)
        finally:
            for view in views:
                self._spark.catalog.dropTempView(view)


def _parsed(sql: str) -> exp.Query:
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect="spark") if statement is not None]
    except ParseError as error:
        found = error.errors[0]
        raise ExpressionSyntaxError(
            f"{found['description']}, line {found['line']}, column {found['col']},", sql
        ) from None
    except TokenError as error:
        raise ExpressionSyntaxError(str(error), sql) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UnsupportedExpressionError("one SELECT is expected", sql)
    return statements[0]


def _catalog_table(spark: SparkSession, catalog: Catalog, node: exp.Table) -> Table | None:
    """Return the catalog table that a place names; None when it is Spark's to find."""
    table = named_table(catalog, node, spark.catalog.currentDatabase())
    if table is None or node.db:
        return table
    name = f"`{table.name}`"
    return None if spark.catalog.tableExists(name) and spark.catalog.getTable(name).isTemporary else table


def _iceberg_frame(spark: SparkSession, table: Table, metadata_table: str | None) -> DataFrame:
    assert table.metadata_location is not None
    return read_metadata_file(spark, table.metadata_location, metadata_table)


def _edited(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with some of its parts, each from start to end, replaced."""
    for start, end, replacement in sorted(edits, reverse=True):
        text = f"{text[:start]}{replacement}{text[end:]}"
    return text


def _stand_ins(spark: SparkSession, statement: _Statement, tables: Sequence[Table] | None = None) -> list[DataFrame]:
    """Return a frame for each table of a statement, or for others in their places."""
    found = enumerate(statement.tables if tables is None else tables)
    return [_stand_in(spark, table, number, number in statement.id_places) for number, table in found]


def _stand_in(spark: SparkSession, table: Table, number: int, has_ids: bool) -> DataFrame:
    """Return a frame with a table's columns of which the optimizer knows nothing else, not that it is empty."""
    known = {column.name: char_metadata(column) for column in (*table.columns, *table.partition_keys)}
    schema = table_schema(table)
    if has_ids:
        schema = schema.add(hidden_name(number), IntegerType())
    schema = StructType(
        [
            StructField(column.name, column.dataType, True, {_MARK: number, **known.get(column.name, {})})
            for column in schema
        ]
    )
    return _frame_of_unknown(spark, schema.json())


@lru_cache(maxsize=64)
def _frame_of_unknown(spark: SparkSession, schema: str) -> DataFrame:
    # By the JVM alone: an RDD of Python would take several times as long to make.
    context, session = spark.sparkContext, spark._jsparkSession
    return DataFrame(session.createDataFrame(context._jsc.emptyRDD(), session.parseDataType(schema)), spark)


def _as_of_now(frame: DataFrame) -> DataFrame:
    """Return a frame for which `current_date` and the like are fixed."""
    if not _reads_clock(frame):
        return frame
    catalyst = _catalyst(frame.sparkSession)
    fix = catalyst.sql.catalyst.optimizer.ComputeCurrentTime
    return catalyst.frame_of(fix.apply(frame._jdf.queryExecution().analyzed()))


def _reads_clock(frame: DataFrame) -> bool:
    pattern = _catalyst(frame.sparkSession).current_like
    return bool(frame._jdf.queryExecution().analyzed().containsPattern(pattern))


@lru_cache(maxsize=1)
def _catalyst(spark: SparkSession) -> Catalyst:
    return Catalyst(spark)


def _conditions(planned: DataFrame | None, tables: Sequence[Table]) -> list[str | None]:
    """Return, for each stand-in of a table, a condition that all partitions that matter to a statement meet.

    None is for all partitions. A stand-in that the optimizer has removed does not matter at all.

    Args:
        planned: The statement over the stand-ins; None for one that needs all rows.
    """
    if planned is None:
        return [None] * len(tables)
    planned = _as_of_now(planned)
    found: list[list[str | None]] = [[] for _ in tables]
    if planned.sparkSession.conf.get("spark.sql.session.timeZone") not in UTC_NAMES:
        tables = [_without_timestamps(table) for table in tables]
    for leaf, condition in _leaves(planned._jdf.queryExecution().optimizedPlan()):
        number = _marked(leaf)
        if number is not None:
            found[number].append(None if condition is None else implied_filter(condition, tables[number]))
    return [any_of(conditions) if conditions else _NOTHING for conditions in found]


def _without_timestamps(table: Table) -> Table:
    """Return a table without the keys that tell a moment only together with a time zone, which texts do not name."""
    if table.scheme is not None:
        return table
    keys = zip(table.partition_keys, table.key_types, strict=True)
    return replace(table, partition_keys=tuple(key for key, kind in keys if not isinstance(kind, TimestampType)))


def _leaves(plan: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the leaves of a plan and of its subqueries, each with the condition of the filter right above it."""
    rest = [(plan, None)]
    while rest:
        node, condition = rest.pop()
        children = items(node.children())
        if not children:
            yield node, condition
        own = node.condition() if kind_of(node) == "Filter" else None
        rest += [(child, own) for child in children]
        rest += [(inner, None) for inner in items(node.innerChildren())]


def _marked(leaf: Any) -> int | None:
    if kind_of(leaf) != "LogicalRDD" or leaf.output().isEmpty():
        return None
    metadata = leaf.output().head().metadata()
    return int(metadata.getLong(_MARK)) if metadata.contains(_MARK) else None
