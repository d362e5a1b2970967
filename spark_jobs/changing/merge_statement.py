"""MERGE: rows of a table are updated, deleted and inserted, as rows of a source match them.

The target is joined with the source three times: to find the files or partitions that have rows which change, to change
their rows, and to find the rows of the source that are inserted. The source is cached for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import sqlglot
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sqlglot import exp
from sqlglot.errors import SqlglotError

from catalog import Catalog, Partition, Table
from catalog.datafiles.committing import CHANGE_ROWS
from catalog.datafiles.files import DataFile
from catalog.errors import AmbiguousMergeError
from catalog.iceberg.live_columns import with_live_columns
from catalog.loading.replaced_folders import list_files
from catalog.model import Column
from catalog.operations.patience import planned_again
from catalog.operations.records import Operation
from catalog.statements.merges import MergeAction, MergeCase
from catalog.statements.model import MergeClause, MergeRows
from catalog.storage.values import ValueEncoder
from catalog.types.key_types import DateType, IntegerType, KeyValueError, StringType
from spark_jobs.changing import iceberg_changes
from spark_jobs.changing.changed_rows import check, chosen, clause_values
from spark_jobs.changing.concerned_partitions import (
    current_files,
    identities_of_rows,
    partitions_among,
    refuse_missing,
    rows_of,
)
from spark_jobs.changing.literals import check_literals
from spark_jobs.changing.row_changes import CHANGE, begin_change
from spark_jobs.changing.scheme_changes import FILE, relative_path, rows_of_files, with_files
from spark_jobs.queries.query import over_frames, prune_query
from spark_jobs.reading.bad_files import Persist, cached
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.tables import read_table
from spark_jobs.rows.key_spellings import without_null_texts
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, shaped_rows
from spark_jobs.sessions.session import attempt_here
from spark_jobs.writing.scheme_loading import SchemeRows, publish_scheme_rows
from spark_jobs.writing.value_loading import NewRows, publish_rows

_TARGET, _SOURCE = "calve/target", "calve/source"
_ROW, _IS_SOURCE, _ACTION, _KEY = "calve/row", "calve/is_source", "calve/action", "calve/key/"
_NEW, _VALUE, _PROBLEM = "calve/new/", "calve/value/", "calve/problem/"
_MATCHES, _UPDATED, _DELETED = "matches", "updated", "deleted"
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 5, 60

_PRUNING_TYPES = (IntegerType, DateType, StringType)

Unit = tuple[Any, ...]
"""The unit of replacement: the path of a file as Spark reports it, or the values of a partition as strings."""


def merge(
    spark: SparkSession, catalog: Catalog, operation_id: str, statement: MergeRows, *, requested_by: str | None = None
) -> dict[str, Any]:
    """Run a MERGE in one operation; a repeated call returns the same report.

    Args:
        statement: With the databases of all tables, and without views.

    Returns:
        The report: of a table with a partition scheme `rows_inserted`, `rows_updated` and `rows_deleted`; of others as
        for `overwrite_rows`.

    Raises:
        AmbiguousMergeError: Several rows of the source match a row of the table.
        InvalidRowsError: A column does not exist, or a value does not fit its column.
        RefusedStatementError: An expression uses what is not allowed.
        LiteralTypeError: As for `delete_rows`.
        CatalogError: See `overwrite_rows`.
    """
    name = f"{statement.table.database}.{statement.table.name}"
    target = catalog.get_table(name)
    target = with_live_columns(target) if target.is_iceberg else target
    conditions = {statement.condition, *(clause.condition for clause in statement.clauses)}
    for expression, sees_target in _expressions(statement):
        check(spark, expression, is_repeatable=expression in conditions)
        check_literals(spark, target, expression, statement.alias, is_unqualified=sees_target)
    operation, table = begin_change(catalog, operation_id, name, {"change": "merge"}, requested_by)
    if table.is_iceberg:
        return iceberg_changes.merge(spark, catalog, operation, statement)
    with cached() as persist:
        if table.scheme is None:
            return publish_rows(
                spark,
                catalog,
                operation,
                CHANGE,
                table,
                lambda reserved: _merged_partitions(spark, catalog, reserved, statement, persist),
            )
        if operation.is_committed:
            return dict(operation.report[CHANGE_ROWS])
        return planned_again(lambda: _merge_files(spark, catalog, operation, statement, persist))


def _expressions(statement: MergeRows) -> Iterator[tuple[str, bool]]:
    """Yield the expressions of a MERGE, and whether they may have columns of the target."""
    yield statement.condition, True
    for clause in statement.clauses:
        sees_target = clause.case is not MergeCase.NOT_MATCHED
        if clause.condition is not None:
            yield clause.condition, sees_target
        values = clause.values or ()
        for value in values.values() if isinstance(values, Mapping) else values:
            yield value, sees_target


def _merge_files(
    spark: SparkSession, catalog: Catalog, operation: Operation, statement: MergeRows, persist: Persist
) -> dict[str, Any]:
    """Merge into a table with a partition scheme."""
    with attempt_here(catalog, operation, CHANGE_ROWS) as attempt:
        merge = _Merge(spark, catalog, catalog.get_table(operation.table), statement, persist)
        # The files that may have rows that match.
        scan = catalog.scan_files(operation.table, merge.filter_of_matches())
        every = rows_of_files(spark, scan.table, scan.files)
        hits = merge.hits(with_files(every), [FILE])

        def of_units(units: Iterable[Unit]) -> list[DataFile]:
            paths = {relative_path(scan.table, path) for (path,) in units}
            return [file for file in scan.files if file.path in paths]

        retired = of_units(hits.units)
        matched = every if hits.matched is None else rows_of_files(spark, scan.table, of_units(hits.matched))
        result = merge.result(rows_of_files(spark, scan.table, retired), matched)
        new = SchemeRows.instead_of(retired, scan)
        new = replace(new, rows=result.rows, columns=result.columns, may_extend=True, is_overwrite=True)
        report = {"rows_inserted": result.inserted_count, "rows_updated": hits.updated, "rows_deleted": hits.deleted}
        return publish_scheme_rows(spark, catalog, operation, (CHANGE_ROWS, attempt), scan.table, new, report)


def _merged_partitions(
    spark: SparkSession, catalog: Catalog, table: Table, statement: MergeRows, persist: Persist
) -> NewRows:
    """Return the rows of the partitions that change in a table without a partition scheme."""
    table, state = current_files(catalog, table)
    merge = _Merge(spark, catalog, table, statement, persist)
    where = merge.filter_of_matches()
    # The partitions that may have rows that match.
    every = read_table(spark, table.full_name, where, catalog=catalog)
    texts = {_KEY + key: without_null_texts(f.col(quoted(key)).cast("string")) for key in table.key_names}
    hits = merge.hits(every.withColumns(texts), list(texts))
    encoder = ValueEncoder(table)
    wanted = {encoder.identity(values): values for values in (*hits.units, *(hits.matched or ()))}
    concerned = partitions_among(catalog, table, wanted)
    found = {encoder.identity(partition.values): partition for partition in concerned}
    units = {encoder.identity(values): values for values in hits.units}
    hit = [found[identity] for identity in units if identity in found]
    refuse_missing(table, units, hit)
    has_all = hits.matched is not None and len(found) == len(wanted)
    read = dict(list_files(table, hit))
    result = merge.result(
        rows_of(spark, catalog, table, hit, state),
        rows_of(spark, catalog, table, concerned, state) if has_all else every,
    )
    known = {partition.id for partition in hit}
    targets = partitions_among(catalog, table, identities_of_rows(table, result.moving(table.key_names)))
    others: list[Partition] = [partition for partition in targets if partition.id not in known]
    rows = result.rows
    if others:
        read |= list_files(table, others)
        kept = _flat(*shaped_rows(table, rows_of(spark, catalog, table, others, state)))
        rows = rows.unionByName(kept)
    return NewRows(table, rows, result.columns, [*hit, *others], state=state, where=where, read=read)


@dataclass(frozen=True)
class _Hits:
    """The files or partitions with rows that change, and the numbers of these rows.

    Attributes:
        matched: Those with rows that match a row of the source; None if it is not known.
    """

    units: Sequence[Unit] = ()
    updated: int = 0
    deleted: int = 0
    matched: Sequence[Unit] | None = None


@dataclass(frozen=True)
class _Result:
    """The rows of the units that change, after the change, and inserted rows.

    Attributes:
        columns: The columns of both, as `_flat` names them.
        inserted: None if there are none.
        may_move: Whether changed rows may belong to another partition than before.
    """

    columns: list[CheckedColumn]
    changed: DataFrame
    inserted: DataFrame | None
    inserted_count: int
    may_move: bool

    @property
    def rows(self) -> DataFrame:
        """All these rows."""
        return self.changed if self.inserted is None else self.changed.unionByName(self.inserted)

    def moving(self, keys: Sequence[str]) -> DataFrame:
        """Return the partition keys of the rows that may belong to partitions that have no rows which change."""
        rows = self.rows if self.may_move else self.inserted
        if rows is None:
            rows = self.changed.limit(0)
        return rows.select(*[f.col(quoted(_VALUE + key)).alias(key) for key in keys])


class _Merge:
    """A MERGE over frames of its target and its source."""

    def __init__(
        self, spark: SparkSession, catalog: Catalog, table: Table, statement: MergeRows, persist: Persist
    ) -> None:
        """Read the source of a MERGE into a table."""
        self._spark, self._catalog, self.table, self._statement = spark, catalog, table, statement
        sql = f"SELECT * FROM {statement.source} AS {quoted(statement.source_alias)}"
        source = prune_query(spark, sql, catalog=catalog, untrusted=sql).frame
        self._source_columns = source.columns
        self._persist = persist
        self._source = persist(source.withColumn(_IS_SOURCE, f.lit(True)))
        self._columns = (*table.columns, *table.partition_keys)
        self._clauses = list(enumerate(statement.clauses))
        self._deleting = [number for number, clause in self._clauses if clause.action is MergeAction.DELETE]

    def filter_of_matches(self) -> str | None:
        """Return a catalog filter that is true for the rows of the table that the MERGE reads; None for all.

        Of `t.c = s.c`, it has the least and the greatest value of the source, if the types are the same.
        """
        if any(clause.case is MergeCase.NOT_MATCHED_BY_SOURCE for _, clause in self._clauses):
            return None
        return filter_of_values(self.table, self._source, self._equal_columns())

    def _equal_columns(self) -> Iterator[tuple[str, str]]:
        """Yield the columns of the target and the source that the condition compares by `=`, in lower case."""
        try:
            tree = sqlglot.parse_one(self._statement.condition, dialect="spark")
        except SqlglotError:
            return
        names = {self._statement.alias: 0, self._statement.source_alias: 1}
        for part in tree.flatten() if isinstance(tree, exp.And) else [tree]:
            sides = [part.this, part.expression] if isinstance(part, exp.EQ) else []
            columns = [side for side in sides if isinstance(side, exp.Column) and side.table.lower() in names]
            own = {names[column.table.lower()]: column.name.lower() for column in columns if not column.db}
            if len(own) == 2:
                yield own[0], own[1]

    def hits(self, target: DataFrame, unit: Sequence[str]) -> _Hits:
        """Return the units that have rows which change.

        Args:
            target: All rows of the table, with the columns `unit`.

        Raises:
            AmbiguousMergeError: Several rows of the source match a row.
        """
        if all(clause.case is MergeCase.NOT_MATCHED for _, clause in self._clauses):
            return _Hits()
        by_source = any(clause.case is MergeCase.NOT_MATCHED_BY_SOURCE for _, clause in self._clauses)
        rows = target.withColumn(_ROW, f.monotonically_increasing_id())
        own = [*unit, _ROW, *(column.name for column in self._columns)]
        shown = f"struct({', '.join(self._of_target(column.name) for column in self._columns[:_SHOWN_COLUMNS])})"
        selected = [
            *(f"{self._of_target(name)} AS {quoted(name)}" for name in own[: len(unit) + 1]),
            f"{self._is_matched} AS {quoted(_MATCHES)}",
            f"{self._action} AS {quoted(_ACTION)}",
            f"{shown} AS {quoted(_VALUE)}",
        ]
        join = self._joined(", ".join(selected), "LEFT" if by_source else "INNER")
        judged = over_frames(self._spark, self._catalog, join, {_TARGET: rows.select(*map(quoted, own)), **self._given})
        action, matches = f.col(quoted(_ACTION)), f.count_if(f.col(_MATCHES)).alias(_MATCHES)
        by_row = judged.groupBy(*map(quoted, [*unit, _ROW])).agg(
            matches, f.max(action).alias(_ACTION), f.first(quoted(_VALUE)).alias(_VALUE)
        )
        is_deleted = action.isin(self._deleting) if self._deleting else f.lit(False)
        by_unit = by_row.groupBy(*map(quoted, unit)).agg(
            f.max(_MATCHES).alias(_MATCHES),
            f.count_if(action.isNotNull() & ~is_deleted).alias(_UPDATED),
            f.count_if(action.isNotNull() & is_deleted).alias(_DELETED),
            f.max_by(f.col(quoted(_VALUE)).cast("string"), f.col(_MATCHES)).alias(_VALUE),
        )
        found = by_unit.where(f"{_MATCHES} > 0 OR {_UPDATED} > 0 OR {_DELETED} > 0").collect()
        for row in found:
            if row[_MATCHES] > 1:
                raise AmbiguousMergeError(self.table.full_name, str(row[_VALUE])[:_SHOWN_CHARACTERS], row[_MATCHES])
        units = [(tuple(row[name] for name in unit), row) for row in found]
        return _Hits(
            [values for values, row in units if row[_UPDATED] or row[_DELETED]],
            sum(row[_UPDATED] for row in found),
            sum(row[_DELETED] for row in found),
            [values for values, row in units if row[_MATCHES]],
        )

    def result(self, hit: DataFrame, matched: DataFrame) -> _Result:
        """Return the changed rows of the units that have any, and the inserted rows.

        Args:
            hit: The rows of these units before the change.
            matched: Rows of the table that include all that match a row of the source.
        """
        inserted, count = None, 0
        if any(clause.action is MergeAction.INSERT for _, clause in self._clauses):
            inserted = self._persist(_flat(*self._inserted(matched)))
            count = inserted.count()
        columns = [
            CheckedColumn(column, f.col(quoted(_VALUE + column.name)), f.col(quoted(_PROBLEM + column.name)))
            for column in self._columns
        ]
        updates = [self._values(clause) for _, clause in self._clauses if clause.action is MergeAction.UPDATE]
        may_move = any(values.keys() & set(self.table.key_names) for values in updates)
        return _Result(columns, _flat(*self._changed(hit)), inserted, count, may_move)

    def _changed(self, target: DataFrame) -> tuple[DataFrame, list[CheckedColumn]]:
        names = [f"{self._of_target(column.name)} AS {quoted(column.name)}" for column in self._columns]
        updates = [(number, self._values(clause)) for number, clause in self._clauses if clause.action == "UPDATE"]
        rows = self._with_values(names, self._joined("{}", "LEFT"), updates, {_TARGET: target, **self._given})
        is_gone = f.col(quoted(_ACTION)).isin(self._deleting) if self._deleting else f.lit(False)
        rows = rows.where(~f.coalesce(is_gone, f.lit(False)))
        return rows, [
            _chosen_column(rows, updates, column, checked_column(column, f.col(quoted(column.name)), own.dataType))
            for column, own in zip(self._columns, target.select(*self._quoted_columns).schema, strict=True)
        ]

    def _inserted(self, target: DataFrame) -> tuple[DataFrame, list[CheckedColumn]]:
        sql = (
            f"SELECT {{}} FROM {quoted(_SOURCE)} AS {quoted(self._statement.source_alias)} LEFT ANTI JOIN "
            f"{quoted(_TARGET)} AS {quoted(self._statement.alias)} ON (\n{self._statement.condition}\n)"
        )
        inserts = [(number, self._values(clause)) for number, clause in self._clauses if clause.action == "INSERT"]
        frames = {_TARGET: target.select(*self._quoted_columns), **self._given}
        rows = self._with_values([], sql, inserts, frames).where(f.col(quoted(_ACTION)).isNotNull())
        columns = [
            _chosen_column(rows, inserts, column, checked_column(column, None, None)) for column in self._columns
        ]
        return rows, columns

    def _with_values(
        self,
        selected: Sequence[str],
        sql: str,
        valued: Sequence[tuple[int, Mapping[str, str]]],
        frames: Mapping[str, DataFrame],
    ) -> DataFrame:
        """Return a join with the clause that applies to each row, and the new values of each clause.

        Args:
            sql: With a place for what it selects.
            valued: Number of a clause → its values.
        """
        is_insert = not selected
        action = self._case(MergeCase.NOT_MATCHED) if is_insert else self._action
        values = [
            f"CASE WHEN {self._applies(number)} THEN (\n{expression}\n) END AS {quoted(f'{_NEW}{number}/{name}')}"
            for number, own in valued
            for name, expression in own.items()
        ]
        text = ", ".join([*selected, f"{action} AS {quoted(_ACTION)}", *values])
        return over_frames(self._spark, self._catalog, sql.replace("{}", text, 1), frames)

    @cached_property
    def _given(self) -> dict[str, DataFrame]:
        return {_SOURCE: self._source}

    @property
    def _quoted_columns(self) -> list[str]:
        return [quoted(column.name) for column in self._columns]

    def _joined(self, selected: str, kind: str) -> str:
        statement = self._statement
        return (
            f"SELECT {selected} FROM {quoted(_TARGET)} AS {quoted(statement.alias)} {kind} JOIN {quoted(_SOURCE)} AS "
            f"{quoted(statement.source_alias)} ON (\n{statement.condition}\n)"
        )

    def _of_target(self, name: str) -> str:
        return f"{quoted(self._statement.alias)}.{quoted(name)}"

    @property
    def _is_matched(self) -> str:
        return f"coalesce({quoted(self._statement.source_alias)}.{quoted(_IS_SOURCE)}, false)"

    @property
    def _action(self) -> str:
        """The number of the clause that applies to a row of the table, in SQL; null if none does."""
        matched, others = self._case(MergeCase.MATCHED), self._case(MergeCase.NOT_MATCHED_BY_SOURCE)
        return f"CASE WHEN {self._is_matched} THEN {matched} ELSE {others} END"

    def _case(self, case: MergeCase) -> str:
        own = [(number, clause.condition) for number, clause in self._clauses if clause.case is case]
        branches = [f"WHEN {_parenthesised(condition)} THEN {number}" for number, condition in own]
        return f"CASE {' '.join(branches)} END" if branches else "CAST(NULL AS INT)"

    def _applies(self, number: int) -> str:
        """Return a condition for the rows for which a clause's expressions have a value, in SQL."""
        clause = self._statement.clauses[number]
        condition = _parenthesised(clause.condition)
        match clause.case:
            case MergeCase.MATCHED:
                return f"{self._is_matched} AND {condition}"
            case MergeCase.NOT_MATCHED_BY_SOURCE:
                return f"NOT {self._is_matched} AND {condition}"
        return condition

    def _values(self, clause: MergeClause) -> dict[str, str]:
        return clause_values(self.table, self._statement, clause, self._source_columns)


def filter_of_values(table: Table, source: DataFrame, pairs: Iterable[tuple[str, str]]) -> str | None:
    """Return a catalog filter that is true for the rows of a table with values that a source has; None for all.

    It has the least and the greatest value of the source, of columns with the same type in both.

    Args:
        pairs: Columns of the table and of the source, in lower case, whose values are equal and not null.
    """
    view, sources = table.filter_view, {name.lower(): name for name in source.columns}
    types, parts = dict(zip(view.key_names, view.key_types, strict=True)), []
    for name, own in pairs:
        key_type = types.get(name)
        if own not in sources or name not in table.pruning_columns or not isinstance(key_type, _PRUNING_TYPES):
            continue
        given = source.select(quoted(sources[own])).schema[0]
        if str(key_type) != given.dataType.simpleString():
            continue
        value = f.col(quoted(given.name))
        bounds: Any = source.agg(f.min(value).cast("string"), f.max(value).cast("string")).first()
        if bounds[0] is None:
            return "false"
        try:
            low, high = (key_type.format(key_type.parse_literal(bound)) for bound in bounds)
        except KeyValueError:
            continue
        parts.append(f"{quoted(name)} >= {low} and {quoted(name)} <= {high}")
    return " and ".join(parts) or None


def _parenthesised(condition: str | None) -> str:
    # On lines of its own, because it may end with a comment.
    return "true" if condition is None else f"(\n{condition}\n)"


def _chosen_column(
    rows: DataFrame, valued: Sequence[tuple[int, Mapping[str, str]]], column: Column, otherwise: CheckedColumn
) -> CheckedColumn:
    """Return the check of a column that gets its value from the clause that applies."""

    def of_clause(number: int) -> CheckedColumn:
        name = f"{_NEW}{number}/{column.name}"
        return checked_column(column, f.col(quoted(name)), rows.schema[name].dataType)

    applies: list[tuple[SparkColumn, CheckedColumn]] = [
        (f.col(quoted(_ACTION)).eqNullSafe(number), of_clause(number)) for number, own in valued if column.name in own
    ]
    return reduce(lambda rest, clause: chosen(clause[0], clause[1], rest), applies, otherwise)


def _flat(rows: DataFrame, columns: Sequence[CheckedColumn]) -> DataFrame:
    """Return checked columns as columns of values and problems, so that rows with other checks can be added."""
    values = [checked.value.alias(_VALUE + checked.column.name) for checked in columns]
    problems = [
        (f.lit(None) if checked.problem is None else checked.problem)
        .cast("string")
        .alias(_PROBLEM + checked.column.name)
        for checked in columns
    ]
    return rows.select(*values, *problems)
