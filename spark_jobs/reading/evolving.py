"""Evolution of a table by the files of a load, as its schema contract allows: further columns, and wider types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    VarcharType,
)

from catalog.files.filesystem import FileInfo
from catalog.model import Column, Table
from catalog.settings.contracts import ContractMode
from catalog.tables.evolution import evolved
from catalog.tables.spark_schema import column_defaults
from spark_jobs.reading.paths import quoted
from spark_jobs.reading.source_checks import CORRUPT, FILE, Target, UnfitFilesError
from spark_jobs.rows.value_checks import checked_column

_INTEGERS: Sequence[type[DataType]] = (ByteType, ShortType, IntegerType, LongType)
_INTEGER_NAMES = ("tinyint", "smallint", "int", "bigint")
_DIGITS = 38
_LONGEST_VARCHAR = 65_535


@dataclass(frozen=True)
class SourceGroup:
    """Files with the same columns.

    Attributes:
        rows: Their rows, with all columns in lower case, and `FILE`.
        names: Column → its spelling in the files.
    """

    files: Sequence[FileInfo]
    rows: DataFrame
    names: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """The columns of the files, in lower case."""
        return [name for name in self.names if name != CORRUPT]


def evolved_for(groups: Sequence[SourceGroup], target: Target) -> Target:
    """Return the load with its table as its contract lets the files change it; the same object if nothing changes.

    The rows are read only if the table has columns that could be wider, and the files do not have exactly their types.

    Raises:
        InvalidTableError: A column of the files cannot be one of the table.
    """
    contract, table = target.contract, target.table
    if table is None or ContractMode.EVOLVE not in (contract.columns, contract.types):
        return target
    groups = [group for group in groups if _has_needed_columns(group, target)]
    added: dict[str, str] = {}
    if contract.columns is ContractMode.EVOLVE:
        for group in groups:
            for name in target.unknown(group.columns):
                added.setdefault(name, group.rows.schema[name].dataType.simpleString())
    widened = _widened_types(groups, target) if contract.types is ContractMode.EVOLVE else {}
    if not added and not widened:
        return target
    return replace(target, table=evolved(table, [Column(name, text) for name, text in added.items()], widened))


def _has_needed_columns(group: SourceGroup, target: Target) -> bool:
    try:
        missing_columns(group.columns, target)
    except UnfitFilesError:
        return False
    return True


@dataclass(frozen=True)
class _Widening:
    """How much wider a column has to be.

    Attributes:
        need: A number for each row; 0 or null if its value fits, or fits no wider type.
        type_for: Returns the type for the greatest number.
    """

    need: SparkColumn
    type_for: Callable[[int], str]


def _widened_types(groups: Sequence[SourceGroup], target: Target) -> dict[str, str]:
    """Return the types that the table's columns need for all values of files that a wider type has without loss."""
    types: dict[str, Callable[[int], str]] = {}
    needs = []
    for group in groups:
        widenings = {}
        for name, text in target.declared.items():
            if name in group.columns and name not in target.placing:
                widening = _widening(name, text, group.rows.schema[name].dataType)
                if widening is not None and _is_valid(group.rows, widening.need):
                    widenings[name] = widening
        if widenings:
            types |= {name: widening.type_for for name, widening in widenings.items()}
            rows = group.rows.where(f.col(CORRUPT).isNull()) if CORRUPT in group.rows.columns else group.rows
            # With the file, because Spark does not read a column with lines that cannot be parsed by itself.
            needs.append(rows.select(FILE, *[widening.need.alias(name) for name, widening in widenings.items()]))
    if not needs:
        return {}
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), needs)
    greatest = rows.agg(*[f.max(quoted(name)).alias(name) for name in types]).first()
    assert greatest is not None
    return {name: type_for(greatest[name]) for name, type_for in types.items() if greatest[name]}


def _is_valid(rows: DataFrame, value: SparkColumn) -> bool:
    """Return whether Spark can compute a value; it cannot cast each type to each other one."""
    try:
        rows.select(value)
    except AnalysisException:
        return False
    return True


def _widening(name: str, text: str, given: DataType) -> _Widening | None:
    """Return how much wider a column has to be for values of a type; None if it has all of them, or cannot be wider.

    Source: `catalog.tables.columns.check_type_change`.
    """
    declared, column = DataType.fromDDL(text), f.col(quoted(name))
    if isinstance(declared, FloatType) and isinstance(given, DoubleType):
        # A double is no float, although the nearest float is accepted where types do not evolve.
        return _Widening(f.lit(1), lambda _: "double")
    problem = checked_column(Column(name, text), column, given).problem
    if problem is None:
        return None

    def fits(wider: str) -> SparkColumn:
        found = checked_column(Column(name, wider), column, given).problem
        return f.lit(True) if found is None else found.isNull()

    if type(declared) in _INTEGERS:
        wider = _INTEGER_NAMES[_INTEGERS.index(type(declared)) + 1 :]
        needs = [f.when(fits(candidate), f.lit(number)) for number, candidate in enumerate(wider, 1)]
        return _Widening(f.coalesce(f.when(problem.isNull(), f.lit(0)), *needs), lambda need: wider[need - 1])
    if isinstance(declared, FloatType):
        return _Widening(f.when(problem.isNotNull() & fits("double"), f.lit(1)), lambda _: "double")
    if isinstance(declared, DecimalType):
        precision, scale = declared.precision, declared.scale
        widest = f"decimal({_DIGITS},{scale})"
        whole = f.floor(f.abs(checked_column(Column(name, widest), column, given).value)).cast("string")
        need = f.when(problem.isNotNull() & fits(widest), f.length(whole) + f.lit(scale))
        return _Widening(need, lambda digits: f"decimal({max(digits, precision + 1)},{scale})")
    if isinstance(declared, VarcharType):
        need = f.when(problem.isNotNull(), f.length(column.cast("string")))
        return _Widening(need, lambda length: f"varchar({length})" if length <= _LONGEST_VARCHAR else "string")
    return None


def missing_columns(columns: Sequence[str], target: Target) -> set[str]:
    """Return the columns of a table that files lack, after checking that they may.

    Raises:
        UnfitFilesError: They may not, or the table does not have one of their columns.
    """
    table = target.table
    placing = [*target.given_keys, *target.placing[:1]]
    if lacking := [name for name in placing if name not in columns and name not in target.folder_keys]:
        folders = "" if target.placing else f", and not every file is in a folder such as {lacking[0]}=…"
        raise UnfitFilesError(
            f"has no column {', '.join(lacking)}, which the table is partitioned by{folders}; its columns are "
            f"{', '.join(columns)}"
        )
    if lacking := [name for name in target.required if name not in columns]:
        entry_field = target.required[lacking[0]]
        raise UnfitFilesError(
            f"has no column {', '.join(lacking)}, which `{entry_field}` of the table's entry names; its "
            f"columns are {', '.join(columns)}. Correct the file, or take the column out of `{entry_field}`"
        )
    if table is None:
        return set()
    missing, unknown = {column.name for column in table.columns}.difference(columns), target.unknown(columns)
    if target.contract.columns is ContractMode.EVOLVE:
        _refuse_former_names(table, unknown)
    # A record of a JSON file that has such a column is bad, not the file.
    if unknown and target.contract.columns is ContractMode.FREEZE and target.job.source_format != "json":
        absent = f"missing {', '.join(sorted(missing))}, " if missing else ""
        raise UnfitFilesError(
            f"does not have the columns of {table.full_name}: {absent}unknown {', '.join(sorted(unknown))}. Correct "
            "the file; or alter the table first; or say in `contract` of the table's entry what becomes of such "
            "columns: evolve, discard_row or discard_value"
        )
    for name in sorted(missing & column_defaults(table.properties).keys()):
        raise UnfitFilesError(
            f"has no column {name}, for which Spark has a default that Calve does not apply; add the column to the file"
        )
    return missing


def _refuse_former_names(table: Table, unknown: Iterable[str]) -> None:
    """Refuse columns with former names of renamed ones, which would be null otherwise.

    Raises:
        UnfitFilesError: There is one.
    """
    renamed = {name: column.name for column in table.columns for name in column.stored_names if name != column.name}
    if former := sorted(renamed.keys() & set(unknown)):
        name, column = former[0], renamed[former[0]]
        raise UnfitFilesError(
            f"has the column {name}, which is a former name of column {column} of {table.full_name} and not a new "
            f"column; rename it to {column} in the file, rename the column back (ALTER TABLE {table.full_name} RENAME "
            f"COLUMN {column} TO {name}), or add a column of this name with ALTER TABLE first"
        )
