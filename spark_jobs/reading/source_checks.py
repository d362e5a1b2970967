"""Checks of the rows of source files: their columns have the types of the table, and their keys have values.

What does not pass a check makes its row bad, or is discarded, as the schema contract of the load says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StringType, StructType, VarcharType

from catalog.model import ICEBERG, Column, FileFormat, LoadMode, Table
from catalog.operations.job_requests import ALLOW, SourceJob
from catalog.settings.contracts import Contract, ContractMode
from catalog.types.key_types import parse_key_type
from spark_jobs.reading.encodings import encoding_of
from spark_jobs.reading.folder_keys import key_of_folder
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.source_lines import OWN
from spark_jobs.rows.file_formats import format_refusal, spark_type
from spark_jobs.rows.key_spellings import canonical_key, without_null_texts
from spark_jobs.rows.value_checks import CheckedColumn, checked_column, first_not_castable

CORRUPT = f"{OWN}corrupt"
"""Column with a line that cannot be parsed as a row; null for other rows."""

FILE = f"{OWN}file"
"""Column with the URI of a row's file."""

PROBLEM = f"{OWN}problem"
"""Column with the problem of a row whose values do not fit their columns; null for others; missing if none has one.

A struct of the column, its value, its type, and a description of the problem.
"""

DISCARDED = f"{OWN}discarded"
"""Column with what the contract leaves out of a row; null for others; missing if the contract leaves nothing out.

A struct of `is_row` (the whole row), `values` (the number of values, if not the row), and `problem`, as `PROBLEM`.
"""

GIVEN = f"{OWN}given"
"""Column with the row of a text file before its values are cast, as a struct."""

KEY = f"{OWN}key_"
"""Start of the names of columns with the values of computed partition keys."""

TEXT_FORMATS = ("csv", "json")
"""Formats with lines, and without types."""

_LONGEST_VALUE = 100
_ANSI = "spark.sql.ansi.enabled"

REPLACED = "\N{REPLACEMENT CHARACTER}"
"""The character that Spark puts in the place of bytes that are not in the encoding of a text file."""

_ENCODING = "set `encoding` in `source_options`, such as ISO-8859-1"
ENCODING_HINT = f"{_ENCODING}, or UTF-8 to load it as it is"

_WITH_TEXT = (StringType, StructType, ArrayType, MapType)


@dataclass(frozen=True)
class Target:
    """The load that files are read for, and its table.

    Attributes:
        table: None if it does not exist yet.
        keys: The partition keys.
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
    def computed(self) -> Mapping[str, str]:
        """The partition keys that are given by expressions over the columns of the files."""
        return {key: text for key, text in self.job.key_expressions.items() if key in self.key_names}

    @property
    def given_keys(self) -> list[str]:
        """The partition keys that the files or the names of their folders have to have."""
        return [name for name in self.key_names if name not in self.computed]

    @property
    def is_iceberg(self) -> bool:
        """Whether the table is, or becomes, an Iceberg table."""
        return self.job.format == ICEBERG if self.table is None else self.table.is_published

    @property
    def placing(self) -> Sequence[str]:
        """The columns by which a partition scheme places and sorts rows, the partition column first."""
        scheme = None if self.table is None else self.table.scheme
        return [] if scheme is None else [scheme.column, *scheme.sort_columns]

    @cached_property
    def required(self) -> Mapping[str, str]:
        """The columns that files have to have, without nulls → the field of the table's entry that names them.

        The keys of a merge are such columns: rows with null there could not be told from each other. So is the
        partition column of a scheme, unless null keys are allowed.
        """
        named = dict.fromkeys(self.job.required, "required")
        if self.job.null_keys != ALLOW:
            named |= dict.fromkeys(self.placing[:1], "null_keys")
        if self.job.mode == LoadMode.MERGE:
            keys = (key for key in self.job.merge_rule.keys if key not in (*named, *self.key_names))
            named |= dict.fromkeys(keys, "merge")
        return named

    @cached_property
    def contract(self) -> Contract:
        """The treatment of unknown columns and unfit values; a table that evolves has done so already."""
        return self.job.schema_contract

    @property
    def declared(self) -> Mapping[str, str]:
        """The columns with known types."""
        if self.table is None:
            return self.job.column_types
        return {column.name: column.type for column in self.table.columns}

    def unknown(self, columns: Sequence[str]) -> list[str]:
        """Return the columns of files that the table does not have."""
        if self.table is None:
            return []
        known = {*self.declared, *self.key_names}
        return [name for name in columns if name not in known and not name.startswith(OWN)]


class UnfitFilesError(Exception):
    """Files with the same columns cannot be loaded.

    Attributes:
        reason: What is wrong with each of them, as a predicate.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class SourceCheck:
    """The check of a column of the files.

    Attributes:
        mode: The treatment of a row whose value has a problem: DISCARD_ROW and DISCARD_VALUE; the others make it bad.
    """

    checked: CheckedColumn
    mode: ContractMode = ContractMode.FREEZE

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.checked.column.name

    @property
    def value(self) -> SparkColumn:
        """The value to load."""
        if self.mode is not ContractMode.DISCARD_VALUE or self.checked.problem is None:
            return self.checked.value
        return f.when(self.checked.problem.isNull(), self.checked.value)


def checks_of(rows: DataFrame, target: Target) -> list[SourceCheck]:
    """Return the checked values of the partition keys, as strings, and of the columns whose types are known.

    Keys that are computed are checked by `with_computed_keys`.
    """
    columns = {field.name: field.dataType for field in rows.schema}
    # First, because the value of a column is that of its last check.
    checks = [SourceCheck(checked) for checked in _texts(columns, target)]
    for name, text in target.declared.items():
        if name in columns and name not in target.key_names:
            checked = checked_column(Column(name, text), f.col(quoted(name)), columns[name])
            if target.table is not None:
                checked = _fit_for_files(checked, target.table.format)
            is_required = name in target.required and target.contract.types is ContractMode.DISCARD_VALUE
            is_frozen = is_required or name in target.placing[:1]
            checks.append(SourceCheck(checked, ContractMode.FREEZE if is_frozen else target.contract.types))
    keys = list(_given_keys(columns, target))
    checks += map(SourceCheck, keys)
    for name in target.unknown(rows.columns):
        column = Column(name, columns[name].simpleString())
        checks.append(SourceCheck(_no_column(column, target), target.contract.columns))
    if target.job.null_keys != ALLOW:
        checks += [SourceCheck(_no_null(checked)) for checked in keys]
    known = {check.name: check.checked for check in checks}
    for name, entry_field in target.required.items():
        if name in columns and name not in target.key_names:
            column = Column(name, columns[name].simpleString())
            checked = known.get(name) or CheckedColumn(column, f.col(quoted(name)))
            checks.append(SourceCheck(_required(checked, entry_field)))
    return checks


def _fit_for_files(checked: CheckedColumn, file_format: FileFormat) -> CheckedColumn:
    """Return the check of a column, which also refuses values that data files of the table's format cannot have."""
    refusal = format_refusal(checked.column, checked.value, file_format)
    if refusal is None:
        return checked
    unfit = f.when(refusal.isNotNull(), checked.value.cast("string"))
    if checked.problem is None or checked.unfit is None:
        return replace(checked, problem=refusal, unfit=unfit)
    return replace(checked, problem=f.coalesce(checked.problem, refusal), unfit=f.coalesce(checked.unfit, unfit))


def _texts(columns: Mapping[str, DataType], target: Target) -> Iterator[CheckedColumn]:
    """Yield the columns of text files with text, checked for bytes that are not in their encoding.

    Spark replaces such bytes, so that files in another encoding would be loaded with wrong letters. A file may have
    the replacement character itself: it is loaded if the settings say that the encoding is UTF-8.
    """
    encoding = encoding_of(target.job)
    if target.job.source_format not in TEXT_FORMATS or encoding == "utf-8":
        return
    hint = ENCODING_HINT if encoding is None else _ENCODING
    others = {*target.key_names, *target.unknown(list(columns))}
    for name, kind in columns.items():
        # Such a character is no part of a number or a date, so the check of the type refuses it.
        is_text = isinstance(
            DataType.fromDDL(target.declared.get(name, "string")), (*_WITH_TEXT, CharType, VarcharType)
        )
        if isinstance(kind, _WITH_TEXT) and is_text and name not in others and not name.startswith(OWN):
            column, value = Column(name, kind.simpleString()), f.col(quoted(name))
            text = value.cast("string")
            yield CheckedColumn(column, value, _not_decoded(f"column {name}", text, hint), text)


def _given_keys(columns: Mapping[str, DataType], target: Target) -> Iterator[CheckedColumn]:
    """Yield the checked partition keys that the files or their folders have."""
    for key in target.keys:
        if key.name in target.computed:
            continue
        given = f.col(quoted(key.name)) if key.name in columns else None
        if key.name in target.folder_keys:
            checked = key_of_folder(key, f.col(FILE), given)
            yield replace(checked, value=canonical_key(checked.value, parse_key_type(key.type)))
        elif given is not None:
            value = given.cast("string")
            is_text = target.job.source_format in TEXT_FORMATS
            problem = _not_decoded(f"partition key {key.name}", value, _ENCODING) if is_text else None
            yield CheckedColumn(key, canonical_key(value, parse_key_type(key.type)), problem, value)


def converted(rows: DataFrame, target: Target) -> tuple[DataFrame, DataFrame]:
    """Return the rows of files with the checked values, and null in the columns of the table that they lack.

    Returns:
        The rows; and to find them in text files, the same rows before the values are cast. Both have `PROBLEM` and
        `DISCARDED` if they may have any.

    Raises:
        UnfitFilesError: A column has a type that cannot be cast to that of the table's, or the expression of a key
            cannot be evaluated.
    """
    checks, unknown = checks_of(rows, target), target.unknown(rows.columns)
    changed = {check.name: check.value for check in checks}
    if target.table is not None:
        absent = {name: text for name, text in target.declared.items() if name not in rows.columns}
        changed |= {name: f.lit(None).cast(spark_type(text)) for name, text in absent.items()}
    if target.job.source_format in TEXT_FORMATS:
        changed[GIVEN] = f.struct("*")
    try:
        result = rows.withColumns({**changed, **_verdicts(rows, checks)})
    except AnalysisException as error:
        if (refused := first_not_castable(rows, [check.checked for check in checks])) is None:
            raise
        name = refused.column.name
        raise UnfitFilesError(
            f"has a column {name} of type {dict(rows.dtypes)[name]}, which cannot become {refused.column.type}; "
            "correct the file, or alter the table first"
        ) from error
    result = with_computed_keys(result, target)
    own = [name for name in result.columns if name == GIVEN or name.startswith(KEY)]
    final = result.drop(*own, *unknown)
    if GIVEN not in own:
        return final, final
    others = [quoted(name) for name in result.columns if name in (PROBLEM, DISCARDED) or name.startswith(KEY)]
    return final, result.select(f"{GIVEN}.*", *others)


def with_computed_keys(rows: DataFrame, target: Target) -> DataFrame:
    """Return rows with the values of the partition keys that are computed from the columns of the table.

    A value that Spark cannot compute, such as a date from other text, is null, as without ANSI mode.

    Raises:
        UnfitFilesError: An expression cannot be evaluated over the columns of the files.
    """
    if not target.computed:
        return rows
    rows = _evaluated(rows, target)
    types = {field.name: field.dataType for field in rows.schema}
    checks: list[SourceCheck] = []
    for key in target.keys:
        if key.name in target.computed:
            name = KEY + key.name
            checked = checked_column(key, f.col(quoted(name)), types[name])
            checked = replace(checked, value=checked.value.cast("string"))
            checks.append(SourceCheck(checked))
            if target.job.null_keys != ALLOW:
                checks.append(SourceCheck(_no_null(checked, f" = {target.computed[key.name]}")))
    values = {check.name: check.value for check in checks}
    try:
        return rows.withColumns({**values, **_verdicts(rows, checks)})
    except AnalysisException as error:
        if (refused := first_not_castable(rows, [check.checked for check in checks])) is None:
            raise
        name, given = refused.column.name, types[KEY + refused.column.name].simpleString()
        raise UnfitFilesError(
            f"gives {given} for the partition key {name}, which cannot become {refused.column.type}; correct its "
            f"expression {target.computed[name]}"
        ) from error


def _evaluated(rows: DataFrame, target: Target) -> DataFrame:
    """Return rows with the values of the expressions of keys, each in a column of its own."""
    conf = rows.sparkSession.conf
    ansi = conf.get(_ANSI)
    # Spark decides during the analysis, which is now, how an expression treats values that it cannot compute.
    conf.set(_ANSI, "false")
    try:
        for name, expression in target.computed.items():
            try:
                rows = rows.select("*", f.expr(expression).alias(KEY + name))
            except PySparkException as error:
                reason = str(error).strip().splitlines()[0]
                raise UnfitFilesError(
                    f"gives no partition key {name}, because Spark cannot evaluate {expression} over its columns: "
                    f"{reason}"
                ) from error
    finally:
        conf.set(_ANSI, str(ansi))
    return rows


def _verdicts(rows: DataFrame, checks: Sequence[SourceCheck]) -> dict[str, SparkColumn]:
    """Return the columns `PROBLEM` and `DISCARDED` after further checks, each unless no row can have one.

    A discarded row is not checked for other problems; of a row that cannot be parsed, nothing is discarded.
    """
    by_mode: dict[ContractMode, list[SparkColumn]] = {}
    for check in checks:
        if check.checked.problem is not None:
            mode = check.mode if check.mode.discards else ContractMode.FREEZE
            by_mode.setdefault(mode, []).append(_problem(check.checked))
    refused = by_mode.get(ContractMode.FREEZE, [])
    for_row, values = by_mode.get(ContractMode.DISCARD_ROW, []), by_mode.get(ContractMode.DISCARD_VALUE, [])
    verdicts: dict[str, SparkColumn] = {}
    is_discarded = None
    if DISCARDED in rows.columns:
        is_discarded = f.coalesce(f.col(DISCARDED).getField("is_row"), f.lit(False))
    elif for_row or values:
        is_row = f.coalesce(*for_row).isNotNull() if for_row else f.lit(False)
        count = reduce(add, [value.isNotNull().cast("int") for value in values], f.lit(0))
        discarded = f.struct(
            is_row.alias("is_row"),
            f.when(is_row, f.lit(0)).otherwise(count).alias("values"),
            f.coalesce(*for_row, *values).alias("problem"),
        )
        is_any = is_row | (count > 0)
        if CORRUPT in rows.columns:
            is_any &= f.col(CORRUPT).isNull()
            is_row &= f.col(CORRUPT).isNull()
        verdicts[DISCARDED] = f.when(is_any, discarded)
        is_discarded = is_row
    if refused:
        earlier = [f.col(PROBLEM)] if PROBLEM in rows.columns else []
        # All conditions are evaluated for each row, so that Spark computes once what they share with the values.
        wrong = reduce(add, [value.isNotNull().cast("int") for value in (*earlier, *refused)]) > 0
        problem = f.when(wrong, f.coalesce(*earlier, *refused))
        verdicts[PROBLEM] = problem if is_discarded is None else f.when(~is_discarded, problem)
    return verdicts


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
    """Return the check that a row has no value in a column that the table does not have."""
    assert target.table is not None
    value = f.col(quoted(column.name))
    problem = f"column {column.name}: {target.table.full_name} has no such column"
    return CheckedColumn(column, value, f.when(value.isNotNull(), f.lit(problem)), value.cast("string"))


def _no_null(key: CheckedColumn, expression: str = "") -> CheckedColumn:
    """Return the check that a key has a value; some strings are Hive's null, too.

    Args:
        expression: How the key is computed, for the message.
    """
    problem = f"partition key {key.column.name}{expression} is null, which `null_keys` refuses"
    is_null = without_null_texts(key.value).isNull()
    return replace(key, problem=f.when(is_null, f.lit(problem)))


def _required(checked: CheckedColumn, entry_field: str) -> CheckedColumn:
    """Return the check that a column is not null; a value that does not fit has a problem of its own.

    Args:
        entry_field: The field of the table's entry that names the column.
    """
    problem = f"column {checked.column.name} is null, which `{entry_field}` of the table's entry refuses"
    is_null = checked.value.isNull()
    if checked.problem is not None:
        is_null &= checked.problem.isNull()
    return replace(checked, problem=f.when(is_null, f.lit(problem)), unfit=None)


def _not_decoded(what: str, value: SparkColumn, hint: str) -> SparkColumn:
    """Return the problem of a value of a text file that could not be decoded."""
    shown = f.left(value, f.lit(_LONGEST_VALUE))
    problem = f.concat(f.lit(f"{what}: '"), shown, f.lit(f"' is not in the file's encoding; {hint}"))
    return f.when(value.contains(REPLACED), problem)
