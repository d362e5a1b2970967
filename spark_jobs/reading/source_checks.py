"""Checks of the rows of source files: their columns have the types of the table, and their keys have values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from catalog.model import Column, Table
from catalog.operations.job_requests import ALLOW, SourceJob
from spark_jobs.reading.folder_keys import key_of_folder
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.source_lines import OWN
from spark_jobs.rows.file_formats import spark_type
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, first_not_castable

CORRUPT = f"{OWN}corrupt"
"""Column with a line that cannot be parsed as a row; null for other rows."""

FILE = f"{OWN}file"
"""Column with the URI of a row's file."""

PROBLEM = f"{OWN}problem"
"""Column with the problem of a row whose values do not fit their columns; null for others; missing if none has one.

A struct of the column, its value, its type, and a description of the problem.
"""

TEXT_FORMATS = ("csv", "json")
"""Formats with lines, and without types."""

_LONGEST_VALUE = 100


_REPLACED = "\N{REPLACEMENT CHARACTER}"
"""The character that Spark puts in the place of bytes that are not in the encoding of a text file."""


@dataclass(frozen=True)
class Target:
    """The load that files are read for, and its table.

    Attributes:
        table: None if it does not exist yet.
        folder_keys: The keys that are in the names of folders.
    """

    job: SourceJob
    table: Table | None
    keys: Sequence[Column]
    folder_keys: Sequence[str]

    @property
    def key_names(self) -> list[str]:
        """The names of the partition keys."""
        return [key.name for key in self.keys]

    @property
    def declared(self) -> Mapping[str, str]:
        """The columns with known types."""
        if self.table is None:
            return self.job.column_types
        return {column.name: column.type for column in self.table.columns}

    def unknown(self, columns: Sequence[str]) -> list[str]:
        """Return the columns of JSON files that the table does not have; a record with one of them is bad."""
        if self.table is None or self.job.source_format != "json":
            return []
        known = {*self.declared, *self.key_names, FILE, CORRUPT}
        return [name for name in columns if name not in known]


class UnfitFilesError(Exception):
    """Files with the same columns cannot be loaded.

    Attributes:
        reason: What is wrong with each of them, as a predicate.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def checks_of(rows: DataFrame, target: Target) -> list[CheckedColumn]:
    """Return the checked values of the partition keys, as strings, and of the columns whose types are known."""
    columns = {field.name: field.dataType for field in rows.schema}
    checks = [
        checked_column(Column(name, text), f.col(quoted(name)), columns[name])
        for name, text in target.declared.items()
        if name in columns and name not in target.key_names
    ]
    for key in target.keys:
        given = f.col(quoted(key.name)) if key.name in columns else None
        if key.name in target.folder_keys:
            checks.append(key_of_folder(key, f.col(FILE), given))
        elif given is not None:
            value = given.cast("string")
            is_text = target.job.source_format in TEXT_FORMATS
            checks.append(CheckedColumn(key, value, _not_decoded(key, value) if is_text else None, value))
    checks += [_no_column(Column(name, columns[name].simpleString()), target) for name in target.unknown(rows.columns)]
    if target.job.null_keys != ALLOW:
        checks += [_no_null(checked) for checked in checks if checked.column.name in target.key_names]
    return checks


def converted(rows: DataFrame, target: Target, checks: Sequence[CheckedColumn]) -> DataFrame:
    """Return the rows of files with the checked values, and null in the columns of the table that they lack.

    Raises:
        UnfitFilesError: A column has a type that cannot be cast to that of the table's.
    """
    changed = {checked.column.name: checked.value for checked in checks}
    if target.table is not None:
        absent = {name: text for name, text in target.declared.items() if name not in rows.columns}
        changed |= {name: f.lit(None).cast(spark_type(text)) for name, text in absent.items()}
    try:
        return with_problem(rows, checks, changed).drop(*target.unknown(rows.columns))
    except AnalysisException as error:
        if (refused := first_not_castable(rows, checks)) is None:
            raise
        name = refused.column.name
        raise UnfitFilesError(
            f"has a column {name} of type {dict(rows.dtypes)[name]}, which cannot become {refused.column.type}; "
            "correct the file, or alter the table first"
        ) from error


def with_problem(
    rows: DataFrame, checks: Sequence[CheckedColumn], changed: Mapping[str, SparkColumn] | None = None
) -> DataFrame:
    """Return rows with `PROBLEM`, unless no row can have one, and with changed columns."""
    problems = [_problem(checked) for checked in checks if checked.problem is not None]
    return rows.withColumns({**(changed or {}), **({PROBLEM: f.coalesce(*problems)} if problems else {})})


def _problem(checked: CheckedColumn) -> SparkColumn:
    """Return the problem of a row's value as a struct; null if it has none."""
    assert checked.problem is not None
    value = f.lit(None).cast("string") if checked.unfit is None else f.left(checked.unfit, f.lit(_LONGEST_VALUE))
    column, kind = f.lit(checked.column.name), f.lit(checked.column.type)
    problem = f.struct(
        column.alias("column"), value.alias("value"), kind.alias("type"), checked.problem.alias("problem")
    )
    return f.when(checked.problem.isNotNull(), problem)


def _no_column(column: Column, target: Target) -> CheckedColumn:
    """Return the check that a JSON record does not have a column that the table does not have."""
    assert target.table is not None
    value = f.col(quoted(column.name))
    problem = f"column {column.name}: {target.table.full_name} has no such column"
    return CheckedColumn(column, value, f.when(value.isNotNull(), f.lit(problem)), value.cast("string"))


def _no_null(key: CheckedColumn) -> CheckedColumn:
    """Return the check that a key has a value; an empty string is Hive's null, too."""
    problem = f"partition key {key.column.name} is null, which `null_keys` refuses"
    is_null = key.value.isNull() | (key.value == "")
    return replace(key, problem=f.when(is_null, f.lit(problem)))


def _not_decoded(key: Column, value: SparkColumn) -> SparkColumn:
    """Return the problem of a key of a text file that could not be decoded, as it would name a folder."""
    problem = f.concat(f.lit(f"partition key {key.name}: '"), value, f.lit("' is not in the file's encoding"))
    return f.when(value.contains(_REPLACED), problem)
