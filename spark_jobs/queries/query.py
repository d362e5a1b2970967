"""SQL over catalog tables with partition pruning.

Spark's optimizer determines the partitions: the statement is planned once over tables without files, and the filter
that is pushed down to a table selects its partitions. Spark handles joins, subqueries and types; this package
translates only simple conditions on partition keys. Plans are read and never changed, except that functions such as
`current_date` become constants.

Spark reads the selected files itself, also those of tables with a partition scheme; `read_scan` has the exceptions.
Reading these through Iceberg takes 0.7 to 2.2 times as long, by statement (2 million rows in 24 files), needs Iceberg's
runtime in each session, and cannot skip files by `_partition_id`. Reading all files takes 2.3 to 7 times as long (100
and 1,000 files, of which a tenth or one is selected). All are medians of runs in turn, Spark 4.1.3 on two busy cores.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
from catalog.statements.query_tables import named_table, start_of, table_nodes
from catalog.types.key_types import TimestampType
from spark_jobs.queries.catalyst import (
    UnknownPlansError,
    as_of_now,
    filtered_leaves,
    frame_of_unknown,
    kind_of,
    known_plans,
    reads_clock,
)
from spark_jobs.queries.checked_plans import check_analysed, check_query
from spark_jobs.queries.implied_filters import any_of, implied_filter
from spark_jobs.queries.one_state import is_one_state, read_once
from spark_jobs.queries.partition_ids import Edit, IdReferences, hidden_name
from spark_jobs.queries.table_names import end_of, is_read_by_iceberg
from spark_jobs.reading.files import empty_table, table_schema
from spark_jobs.reading.iceberg import read_iceberg
from spark_jobs.reading.paths import quoted, quoted_table
from spark_jobs.reading.tables import UTC_NAMES, PrunedTable, opened, prune_table, pruned_scan, read_scan
from spark_jobs.rows.char_columns import char_metadata
from spark_jobs.rows.placement import partition_id

log = logging.getLogger("spark_jobs.queries.query")

_MARK = "calve.occurrence"
"""Metadata key of the columns of a placeholder frame: the number of the table's occurrence in the statement."""

_NOTHING = "false"
"""The condition of an occurrence of which no partition is needed."""

_SELECTIVE = (exp.Where, exp.Join, exp.Having, exp.Qualify, exp.Limit)

_SAMPLE = re.compile(r"\s*TABLESAMPLE\s*\([^()]*\)(\s*REPEATABLE\s*\([^()]*\))?", re.IGNORECASE)


@dataclass(frozen=True)
class PrunedQuery:
    """The DataFrame of a statement, and the tables that it reads.

    Attributes:
        frame: The result.
        tables: Each occurrence of a catalog table in the statement, in order; `where` is the condition that selected
            its partitions. An occurrence that does not affect the result is not read.
    """

    frame: DataFrame
    tables: tuple[PrunedTable, ...]


def query(spark: SparkSession, sql: str, *, catalog: Catalog | None = None) -> DataFrame:
    """Return the result of a SELECT over catalog tables, reading only the partitions that it needs.

    Tables are named `database.table`, or `table` in the session's current database (`USE`). Common table expressions
    and temporary views take precedence, and Spark resolves names that the catalog does not have. The metadata tables
    of an Iceberg table are named as in Spark: `database.table.snapshots`.

    The partitions, and `current_date` and similar functions, are those at the time of the call.

    On a Spark of an unknown release, and with Spark Connect, the catalog selects no partitions: Spark prunes those that
    it can, and `current_date` is that of the time when Spark runs the query. A warning in the log says so.

    Args:
        sql: One SELECT, in Spark's dialect.
        catalog: By default that of `CALVE_CATALOG_URL`.

    Raises:
        ExpressionSyntaxError: The statement cannot be parsed.
        UnsupportedExpressionError: The statement is not a single SELECT.
        InvalidConfigurationError: The statement reads an Iceberg table, and Spark does not have Iceberg's runtime.
        CatalogError: See `read_table`.
    """
    pruned = prune_query(spark, sql, catalog=catalog)
    for table in pruned.tables:
        log.info("%s", table)
    return pruned.frame


def prune_query(
    spark: SparkSession, sql: str, *, catalog: Catalog | None = None, untrusted: str | None = None
) -> PrunedQuery:
    """Return the result of `query`, and the partitions that it reads of each table.

    Args:
        untrusted: The user's text before views were expanded; the statement is then checked
            (`spark_jobs.queries.checked_plans`). None for a trusted statement.

    Raises:
        RefusedStatementError: The untrusted statement is not allowed, or cannot be checked.
        CatalogError: See `query`.
    """
    with opened(catalog) as source:
        statement = _Statement(spark, source, sql, untrusted)
        try:
            with known_plans(spark):
                return _planned(spark, source, statement)
        except UnknownPlansError as error:
            if names := ", ".join(dict.fromkeys(table.full_name for table in statement.tables)):
                log.warning("All partitions of %s are read, except those that Spark itself prunes: %s", names, error)
        return _read(spark, source, statement, [None] * len(statement.tables))


def filters_on(spark: SparkSession, sql: str, filterable: Table, *, catalog: Catalog | None = None) -> list[str | None]:
    """Return the filter that is pushed down to each occurrence of a table in a SELECT; None if it reads all rows.

    Occurrences that do not affect the result are left out.

    Args:
        sql: An untrusted SELECT; it is checked.
        filterable: The table with the `pruning_columns` that filters may use.

    Raises:
        RefusedStatementError: The SELECT is not allowed, or cannot be checked.
        ExpressionSyntaxError, UnsupportedExpressionError: See `query`.
    """
    with opened(catalog) as source:
        statement = _Statement(spark, source, sql, untrusted=sql)
        tables = [filterable if table.full_name == filterable.full_name else table for table in statement.tables]
        with known_plans(spark):
            conditions = _conditions(statement.over(_placeholders(spark, statement, tables)), tables)
    occurrences = zip(conditions, tables, strict=True)
    return [condition for condition, table in occurrences if table is filterable and condition != _NOTHING]


def with_expressions(
    spark: SparkSession, catalog: Catalog, table: Table, rows: DataFrame, expressions: Mapping[str, str]
) -> DataFrame:
    """Return rows of a table with further columns, computed by untrusted expressions, which may read other tables.

    Args:
        rows: Rows with the table's columns and partition keys, and perhaps others.
        expressions: New column → Spark SQL expression over the table's columns.

    Raises:
        RefusedStatementError: An expression is not allowed, or cannot be checked.
        CatalogError: See `query`.
    """
    kept = [quoted(name) for name in rows.columns]
    # On lines of their own, because an expression may end with a comment.
    new = [f"(\n{expression}\n) AS {quoted(name)}" for name, expression in expressions.items()]
    sql = f"SELECT {', '.join([*kept, *new])} FROM {quoted_table(table)}"
    statement = _Statement(spark, catalog, sql, untrusted=sql)
    others = [_in_subquery(spark, catalog, other, None).frame for other in statement.tables[:-1]]
    frames = [
        _with_ids(frame, other, number) if number in statement.id_places else frame
        for number, (frame, other) in enumerate(zip([*others, rows], statement.tables, strict=True))
    ]
    return as_of_now(statement.over(frames))


def as_parameters(
    spark: SparkSession, catalog: Catalog, expression: str, tables: str, given: Mapping[str, DataFrame] | None = None
) -> tuple[str, dict[str, DataFrame]]:
    """Return an untrusted expression for a statement of `spark.sql`, in which tables in subqueries are parameters.

    Args:
        tables: What the columns of the expression belong to, as the text after FROM.
        given: As for `over_frames`.

    Returns:
        The text, with the braces of parameters, and the parameters.

    Raises:
        RefusedStatementError: The expression is not allowed, or cannot be checked.
        CatalogError: See `query`.
    """
    before, after = "SELECT (\n", "\n) FROM "
    sql = f"{before}{expression}{after}{tables}"
    statement = _Statement(spark, catalog, sql, untrusted=sql, given=given)
    _, frames = _scans(spark, catalog, statement, [None] * len(statement.tables))
    # The analysis is a part of the check.
    statement.over(frames)
    text = statement.text.removeprefix(before)
    return text[: text.rindex(after)], statement.parameters(frames)


def over_frames(spark: SparkSession, catalog: Catalog, sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the result of an untrusted SELECT over frames, and over all partitions of catalog tables in subqueries.

    Args:
        frames: Name in the SELECT → frame; the SELECT gives each an alias.

    Raises:
        RefusedStatementError: The SELECT is not allowed, or cannot be checked.
        CatalogError: See `query`.
    """
    statement = _Statement(spark, catalog, sql, untrusted=sql, given=frames)
    return _read(spark, catalog, statement, [None] * len(statement.tables)).frame


def _planned(spark: SparkSession, catalog: Catalog, statement: _Statement) -> PrunedQuery:
    """Return a statement's result from the partitions that Spark's optimizer finds necessary, at the current time."""
    if not statement.is_selective:
        pruned = _read(spark, catalog, statement, [None] * len(statement.tables))
        return replace(pruned, frame=as_of_now(pruned.frame))
    planned = statement.over(_placeholders(spark, statement))
    while True:
        conditions = _conditions(planned, statement.tables)
        pruned = _read(spark, catalog, statement, conditions)
        pruned = replace(pruned, frame=as_of_now(pruned.frame))
        # The result of `current_date` may have changed between the two plans.
        if not reads_clock(planned) or _conditions(planned, statement.tables) == conditions:
            return pruned


def _read(
    spark: SparkSession, catalog: Catalog, statement: _Statement, conditions: Sequence[str | None]
) -> PrunedQuery:
    """Return a statement's result from the partitions of each table that meet a condition; None for all."""
    pruned, frames = _scans(spark, catalog, statement, conditions)
    return PrunedQuery(statement.over(frames), tuple(pruned))


def _scans(
    spark: SparkSession, catalog: Catalog, statement: _Statement, conditions: Sequence[str | None]
) -> tuple[list[PrunedTable], list[DataFrame]]:
    """Return what a statement reads of each table, and the frames of that with the hidden columns that it uses."""
    # Of a query about a changed table, this table is the first one (`one_state_in_subqueries`).
    pruned = [
        (_in_subquery if number else _prune)(spark, catalog, table, condition)
        for number, (table, condition) in enumerate(zip(statement.tables, conditions, strict=True))
    ]
    frames = [
        _with_ids(scan.frame, table, number) if number in statement.id_places else scan.frame
        for number, (scan, table) in enumerate(zip(pruned, statement.tables, strict=True))
    ]
    return pruned, frames


def _in_subquery(spark: SparkSession, catalog: Catalog, table: Table, condition: str | None) -> PrunedTable:
    if condition == _NOTHING or not is_one_state():
        return _prune(spark, catalog, table, condition)
    # All partitions, because another evaluation may need others.
    return read_once(table.full_name, partial(_prune, spark, catalog, table, None))


def _prune(spark: SparkSession, catalog: Catalog, table: Table, condition: str | None) -> PrunedTable:
    if condition == _NOTHING:
        frame = empty_table(spark, table)
        if table.scheme is not None:
            return pruned_scan(catalog.scan_files(table.full_name, _NOTHING), frame)
        return PrunedTable(frame, table.full_name, condition, 0, 0)
    try:
        return _pruned(spark, catalog, table, condition)
    except ExpressionError as error:
        log.warning("All partitions of %s are read: %s", table.full_name, error)
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
    """A SELECT whose catalog tables can be replaced by DataFrames; the rest of its text is unchanged.

    Iceberg tables are read by Iceberg, which prunes its files itself.

    Attributes:
        text: The statement for `spark.sql`, in which tables are parameters.
        tables: The table of each occurrence, without Iceberg tables, in the order of the text.
        id_places: The numbers of the tables of which it reads `_partition_id` (`spark_jobs.queries.partition_ids`).
        is_selective: Whether it has a clause by which the optimizer can skip rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        sql: str,
        untrusted: str | None,
        given: Mapping[str, DataFrame] | None = None,
    ) -> None:
        """Parse a SELECT.

        Args:
            untrusted: See `prune_query`.
            given: Frames by their names in the SELECT, where they have aliases.

        Raises:
            RefusedStatementError, TableNotFoundError: See `spark_jobs.queries.checked_plans.check_query`.
        """
        self._spark, self._catalog = spark, catalog
        self._is_untrusted = untrusted is not None
        tree = _parsed(sql)
        occurrences = [
            (node, table) for node in table_nodes(tree) if (table := _catalog_table(spark, catalog, node)) is not None
        ]
        tables = [(node, table) for node, table in occurrences if not is_read_by_iceberg(node, table)]
        self.tables = [table for _, table in tables]
        numbers = {start_of(node.parts[0]): n for n, (node, table) in enumerate(tables) if table.scheme is not None}
        references = IdReferences(sql, tree, numbers)
        self.id_places = references.places
        self.is_selective = tree.find(*_SELECTIVE) is not None
        prefix = f"calve_{uuid4().hex}"
        self._views: list[str] = []
        # Those of Iceberg tables, and those that the caller has given.
        self._known_views: dict[str, DataFrame] = {}
        self._iceberg_views: dict[tuple[str, str | None], str] = {}
        edits = list(references.edits)
        unaliased = set()
        for number, node in enumerate(table_nodes(tree) if given else (), len(occurrences)):
            if not node.db and given and node.name in given:
                self._known_views[f"{prefix}_{number}"] = given[node.name]
                edits.append((start_of(node.parts[0]), end_of(node.parts[-1]), f"{prefix}_{number}"))
        for number, (node, table) in enumerate(occurrences):
            view = f"{prefix}_{number}"
            if is_read_by_iceberg(node, table):
                view = self._iceberg_view(table, node.name.lower() if node.catalog else None, view)
            else:
                self._views.append(view)
            start, end = start_of(node.parts[0]), end_of(node.parts[-1])
            edits.append((start, end, view))
            if not node.alias:
                # The name of a metadata table follows that of its Iceberg table.
                unaliased.add((table.database, table.name, *([node.name.lower()] if node.catalog else [])))
                sample = _SAMPLE.match(sql, end)
                end = sample.end() if sample else end
                edits.append((end, end, f" AS `{node.name.lower()}`"))
        for column in tree.find_all(exp.Column):
            qualifiers = [part.name.lower() for part in column.parts[:-1]]
            for length in range(2, len(qualifiers) + 1):
                if tuple(qualifiers[:length]) in unaliased:
                    edits.append((start_of(column.parts[0]), start_of(column.parts[length - 1]), ""))
        text = _edited(sql, edits)
        if untrusted is not None:
            check_query(spark, text, untrusted, {*self._views, *self._known_views})
        # Spark's parameters are in braces.
        self.text = re.sub(rf"{prefix}_[0-9]+", r"{\g<0>}", text.replace("{", "{{").replace("}", "}}"))

    def _iceberg_view(self, table: Table, metadata_table: str | None, view: str) -> str:
        """Return the view of an Iceberg table or its metadata table; by default, make it with a given name.

        All occurrences have one view: Spark confuses the columns of several frames of an Iceberg table.
        """
        known = self._iceberg_views.setdefault((table.full_name, metadata_table), view)
        if known is view:
            read = partial(read_iceberg, self._spark, self._catalog, table, metadata_table)
            self._known_views[view] = read_once((table.full_name, metadata_table), read)
        return known

    def parameters(self, frames: Sequence[DataFrame]) -> dict[str, Any]:
        """Return what the parameters in the text stand for."""
        return {**dict(zip(self._views, frames, strict=True)), **self._known_views}

    def over(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Return the statement's result with each table replaced by a frame.

        Raises:
            RefusedStatementError: The untrusted statement is not allowed.
        """
        views = self.parameters(frames)
        # Without parameters, Spark does not format the text.
        result = self._spark.sql(self.text, **views) if views else self._spark.sql(self.text.format())
        if self._is_untrusted:
            check_analysed(self._spark, result)
        return result


def _parsed(sql: str) -> exp.Query:
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect="spark") if statement is not None]
    except ParseError as error:
        first = error.errors[0]
        raise ExpressionSyntaxError(
            f"{first['description']}, line {first['line']}, column {first['col']},", sql
        ) from None
    except TokenError as error:
        raise ExpressionSyntaxError(str(error), sql) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UnsupportedExpressionError("expected a single SELECT", sql)
    return statements[0]


def _catalog_table(spark: SparkSession, catalog: Catalog, node: exp.Table) -> Table | None:
    """Return the catalog table of a reference; None if Spark resolves it."""
    table = named_table(catalog, node, spark.catalog.currentDatabase())
    if table is None or node.db:
        return table
    name = f"`{table.name}`"
    return None if spark.catalog.tableExists(name) and spark.catalog.getTable(name).isTemporary else table


def _edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits applied."""
    for start, end, replacement in sorted(edits, reverse=True):
        text = f"{text[:start]}{replacement}{text[end:]}"
    return text


def _placeholders(spark: SparkSession, statement: _Statement, tables: Sequence[Table] | None = None) -> list[DataFrame]:
    """Return a placeholder frame for each table of a statement, or for tables in their place."""
    numbered = enumerate(statement.tables if tables is None else tables)
    return [_placeholder(spark, table, number, number in statement.id_places) for number, table in numbered]


def _placeholder(spark: SparkSession, table: Table, number: int, has_ids: bool) -> DataFrame:
    """Return a frame with a table's columns; the optimizer does not know that it is empty."""
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
    return frame_of_unknown(spark, schema.json())


def _conditions(planned: DataFrame, tables: Sequence[Table]) -> list[str | None]:
    """Return a condition for each placeholder that all partitions meet that the statement needs.

    None means all partitions. A placeholder that the optimizer removed needs none.

    Args:
        planned: The statement over the placeholders.
    """
    filters: list[list[str | None]] = [[] for _ in tables]
    if planned.sparkSession.conf.get("spark.sql.session.timeZone") not in UTC_NAMES:
        tables = [_without_timestamps(table) for table in tables]
    for leaf, condition in filtered_leaves(as_of_now(planned)):
        number = _marked(leaf)
        if number is not None:
            filters[number].append(None if condition is None else implied_filter(condition, tables[number]))
    return [any_of(conditions) if conditions else _NOTHING for conditions in filters]


def _without_timestamps(table: Table) -> Table:
    """Return a table without its timestamp keys: their strings have no time zone, so instants are ambiguous."""
    if table.scheme is not None:
        return table
    keys = zip(table.partition_keys, table.key_types, strict=True)
    return replace(table, partition_keys=tuple(key for key, kind in keys if not isinstance(kind, TimestampType)))


def _marked(leaf: Any) -> int | None:
    if kind_of(leaf) != "LogicalRDD" or leaf.output().isEmpty():
        return None
    metadata = leaf.output().head().metadata()
    return int(metadata.getLong(_MARK)) if metadata.contains(_MARK) else None
