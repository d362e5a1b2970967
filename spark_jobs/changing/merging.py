"""Merging of a source's rows into a table: of all rows with the same key, the latest stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from catalog import Catalog, Partition, PartitionState, Table
from catalog.errors import ConflictError, InvalidRowsError
from catalog.loading.replaced_folders import list_files
from catalog.model.partition_names import partition_path
from catalog.settings.merge_rules import MergeRule
from catalog.storage.values import ValueEncoder
from spark_jobs.changing.changed_rows import check_alone
from spark_jobs.changing.concerned_partitions import current_files, identities_of_rows, partitions_among, rows_of
from spark_jobs.changing.literals import check_literals
from spark_jobs.changing.merge_statement import filter_of_values
from spark_jobs.changing.scheme_changes import FILE, relative_path, rows_of_files, with_files
from spark_jobs.reading.bad_files import Persist
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.tables import read_table
from spark_jobs.rows.char_columns import with_padded_chars
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.key_spellings import without_null_texts
from spark_jobs.rows.value_checks import CheckedColumn, shaped_rows
from spark_jobs.writing.scheme_loading import SchemeRows
from spark_jobs.writing.value_loading import NewRows

_IS_NEW, _PLACE, _IS_MERGED = "calve/is_new", "calve/place", "calve/is_merged"
_KEY, _TARGET = "calve/key/", "calve/target/"

_Values = tuple[str | None, ...]


def merge_rows(
    spark: SparkSession,
    catalog: Catalog,
    table: Table,
    new: DataFrame,
    columns: Sequence[CheckedColumn],
    rule: MergeRule,
    persist: Persist,
) -> tuple[NewRows, bool]:
    """Return the rows of all partitions that a merge changes, as they are after it, and whether rows move.

    The second value is whether rows move from an existing partition to one that does not exist yet.

    A row of the source takes the place of the table's rows with the same key, in whatever partition they are, unless
    one of these is later by `rule.order`. Of equally late rows, one of the source stays. A row that stays and meets
    `rule.delete` is left out. Rows of the table whose keys the source does not have stay as they are, several with the
    same key, too.

    Args:
        new: The rows of the source.
        columns: The columns of these rows, as the table has them.
        persist: See `spark_jobs.reading.bad_files.cached`.

    Raises:
        InvalidRowsError: The rule names a column that the table does not have.
        RefusedStatementError: The condition `rule.delete` uses what is not allowed.
        LiteralTypeError: It compares a column with a string that is not a value of the column's type.
        ConflictError: A partition that gets rows, or has rows with the keys of new ones, is quarantined.
    """
    typed = _typed(spark, table, new, columns, rule, persist)
    _, state = current_files(catalog, table)
    keys = [(key, key) for key in rule.keys if key in table.key_names]
    where = filter_of_values(table, typed, keys) if keys and state is not None else None
    concerned, moves_rows = _concerned(spark, catalog, table, typed, rule)
    read = list_files(table, concerned)
    rows = _merged(table, rows_of(spark, catalog, table, concerned, state), typed, rule)
    return NewRows(table, *shaped_rows(table, rows), concerned, state=state, where=where, read=read), moves_rows


def merge_into_files(
    spark: SparkSession,
    catalog: Catalog,
    table: Table,
    new: DataFrame,
    columns: Sequence[CheckedColumn],
    rule: MergeRule,
    persist: Persist,
) -> SchemeRows:
    """Return the rows of all files that a merge changes in a table with a partition scheme, as they are after it.

    These are the files that have rows with the keys of new ones. The arguments and errors are those of `merge_rows`.
    """
    typed = _typed(spark, table, new, columns, rule, persist)
    scan = catalog.scan_files(table.full_name, filter_of_values(table, typed, [(key, key) for key in rule.keys]))
    existing = _with_all_columns(table, with_files(rows_of_files(spark, scan.table, scan.files)))
    same = existing.join(*_same_keys(existing, typed, rule), "left_semi").select(quoted(FILE)).distinct()
    paths = {relative_path(scan.table, path) for (path,) in same.toLocalIterator()}
    retired = [file for file in scan.files if file.path in paths]
    merged = persist(_merged(table, rows_of_files(spark, scan.table, retired), typed, rule))
    rows, checked = shaped_rows(table, merged)
    change = SchemeRows.instead_of(retired, scan)
    return replace(change, rows=rows, columns=checked, may_extend=True, is_overwrite=True)


def _typed(
    spark: SparkSession,
    table: Table,
    new: DataFrame,
    columns: Sequence[CheckedColumn],
    rule: MergeRule,
    persist: Persist,
) -> DataFrame:
    """Return the rows of the source as the rows of the table are read, after checking the rule."""
    names = _names(table)
    if unknown := [name for name in (*rule.keys, *filter(None, [rule.order])) if name not in names]:
        raise InvalidRowsError(
            f"table {table.full_name} has no column {', '.join(unknown)}, which `merge` names; its columns are "
            f"{', '.join(names)}"
        )
    if rule.delete:
        check_alone(spark, rule.delete)
        check_literals(spark, table, rule.delete)
    values = new.select(*[checked.value.alias(checked.column.name) for checked in columns])
    return persist(with_padded_chars(values, table))


def _names(table: Table) -> list[str]:
    return [column.name for column in (*table.columns, *table.partition_keys)]


def _merged(table: Table, old: DataFrame, typed: DataFrame, rule: MergeRule) -> DataFrame:
    """Return rows of the table, merged with rows of the source."""
    names = _names(table)
    old = _with_all_columns(table, old).select(*map(quoted, names))
    both = old.withColumn(_IS_NEW, f.lit(False)).union(
        typed.select(*map(quoted, names)).withColumn(_IS_NEW, f.lit(True))
    )
    same = Window.partitionBy(*[f.col(quoted(key)) for key in rule.keys])
    placed = both.withColumns(
        {
            _PLACE: f.row_number().over(_latest_first(same, rule)),
            _IS_MERGED: f.max(f.col(quoted(_IS_NEW))).over(same),
        }
    )
    is_gone = f.col(quoted(_PLACE)) > 1
    if rule.delete:
        is_gone |= f.coalesce(f.expr(rule.delete), f.lit(False))
    latest = placed.where(~(f.col(quoted(_IS_MERGED)) & is_gone))
    return latest.drop(_IS_NEW, _PLACE, _IS_MERGED)


def _with_all_columns(table: Table, old: DataFrame) -> DataFrame:
    """Return rows of the table with null in the columns that it gets with this load."""
    added = {column.name: f.lit(None).cast(spark_type(column.type)) for column in table.columns}
    return old.withColumns({name: null for name, null in added.items() if name not in old.columns})


def _latest_first(same: WindowSpec, rule: MergeRule) -> WindowSpec:
    order: list[SparkColumn] = [f.col(quoted(rule.order)).desc_nulls_last()] if rule.order else []
    return same.orderBy(*order, f.col(quoted(_IS_NEW)).desc())


def _concerned(
    spark: SparkSession, catalog: Catalog, table: Table, new: DataFrame, rule: MergeRule
) -> tuple[list[Partition], bool]:
    """Return the partitions that have rows with keys of the new ones, or get new rows.

    The second value is whether rows move from one of them to a partition that does not exist yet.
    """
    concerned, targets = identities_of_rows(table, new.select(*map(quoted, table.key_names))), set[bytes]()
    if not set(table.key_names) <= set(rule.keys):
        existing = _with_all_columns(table, read_table(spark, table.full_name, catalog=catalog))
        _refuse_hidden(spark, catalog, table, new, rule)
        encoder = ValueEncoder(table)
        for before, after in _places(table, existing, new, rule):
            identity, target = encoder.identity(before), encoder.identity(after)
            concerned.setdefault(identity, before)
            targets |= {target} - {identity}
    partitions = partitions_among(catalog, table, concerned)
    if not targets:
        return partitions, False
    return partitions, not targets <= {ValueEncoder(table).identity(partition.values) for partition in partitions}


def _places(table: Table, existing: DataFrame, new: DataFrame, rule: MergeRule) -> Iterator[tuple[_Values, _Values]]:
    """Yield the partitions of existing rows with keys of the new ones, each with a partition of such a new one."""
    targets = new.select(
        *[f.col(quoted(key)).alias(_KEY + key) for key in rule.keys],
        *[_text(new, key).alias(_TARGET + key) for key in table.key_names],
    ).distinct()
    is_same = [existing[quoted(key)].eqNullSafe(targets[quoted(_KEY + key)]) for key in rule.keys]
    before = [_text(existing, key).alias(key) for key in table.key_names]
    after = [f.col(quoted(_TARGET + key)) for key in table.key_names]
    count = len(table.key_names)
    for row in existing.join(targets, is_same).select(*before, *after).distinct().toLocalIterator():
        yield tuple(row[:count]), tuple(row[count:])


def _text(rows: DataFrame, key: str) -> SparkColumn:
    return without_null_texts(rows[quoted(key)].cast("string"))


def _same_keys(existing: DataFrame, new: DataFrame, rule: MergeRule) -> tuple[DataFrame, list[SparkColumn]]:
    """Return the keys of new rows, which are few beside those of the table, and the condition to join them."""
    keys = new.select(*map(quoted, rule.keys)).distinct()
    return keys, [existing[quoted(key)].eqNullSafe(keys[quoted(key)]) for key in rule.keys]


def _refuse_hidden(spark: SparkSession, catalog: Catalog, table: Table, new: DataFrame, rule: MergeRule) -> None:
    """Refuse a merge if quarantined partitions have rows with its keys, which would exist twice after their release.

    Raises:
        ConflictError: They have, or may have: the rows of those of tables stored as Iceberg are in no snapshot.
    """
    hidden = list(catalog.get_partitions(table.full_name, state=PartitionState.QUARANTINED))
    if not hidden:
        return
    what, shown = "may have rows with the keys of the new ones", hidden[0].name(table)
    if not table.is_stored_as_iceberg:
        rows = _with_all_columns(table, rows_of(spark, catalog, table, hidden, None))
        same = rows.join(*_same_keys(rows, new, rule), "left_semi").select(*map(quoted, table.key_names))
        found = identities_of_rows(table, same.limit(1))
        if not found:
            return
        what, shown = "has rows with keys of the new ones", partition_path(table.key_names, next(iter(found.values())))
    raise ConflictError(
        f"partition {shown} of {table.full_name} is quarantined until its quality is checked, and {what}, so the merge "
        "could leave two rows of one key; nothing was changed. Release the partition or drop it, and run the load again"
    )
