"""Comparison of the metrics that an Iceberg table's manifests declare for each file with the rows of the file.

Readers skip files by bounds and counts, so filters may return wrong results even if a full scan is correct. They cannot
if the rows of each file lie within the bounds of that file, and the numbers of its nulls and NaNs are as declared.

Rows are measured and metrics compared in Python over Arrow: Spark's plan for minima of strings sorts all rows by file,
and a plan with aggregates for many columns is not compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from spark_jobs.reading.paths import quoted
from spark_jobs.sessions.python_tasks import in_batches

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.schema import Schema
    from pyiceberg.types import PrimitiveType

SHOWN = 10
"""Maximum number of reported wrong metrics."""
FILE = "calve/file"
"""The column of the file's path, spelled as in the manifests."""

COMPARED_BYTES = 256
"""Length of the prefix of strings and binary values that is compared with bounds: longer than usual bounds."""
ROWS = "calve/rows"
"""The column of the number of rows."""

_METRICS = "calve/metrics"
_METRICS_TYPE = "array<struct<nulls:bigint,nans:bigint,low:binary,high:binary>>"
_DECLARED = (
    "record_count",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


class Leaf(NamedTuple):
    """A top-level column, or a field inside structs, that filters can use.

    Attributes:
        path: The names of the enclosing structs and its own name.
        column: Its values.
    """

    path: tuple[str, ...]
    column: Column
    data_type: DataType

    @property
    def name(self) -> str:
        """The full name, as in Iceberg's metrics."""
        return ".".join(self.path)


class WrongMetric(NamedTuple):
    """A metric that does not describe the rows of its file.

    Attributes:
        column: The column's full name; None for counts of rows or files.
        fact: The metric.
        declared: The value in the manifest, as a string; binary values as hexadecimal digits.
        actual: The minimum, the maximum or the number of the rows.
    """

    file: str
    column: str | None
    fact: str
    declared: str
    actual: str

    def __str__(self) -> str:
        """Return a description of the problem, as a clause."""
        place = "" if self.column is None else f"column {self.column}: "
        return f"{place}{self.fact} {self.declared} for {self.actual} in the rows of {self.file}"


def leaves_of(schema: StructType, names: Sequence[str]) -> list[Leaf]:
    """Return the columns for which manifests have metrics, which excludes columns inside lists and maps."""
    types = {field.name: field.dataType for field in schema}
    return [leaf for name in names for leaf in _leaves((name,), f.col(quoted(name)), types[name])]


def _leaves(path: tuple[str, ...], column: Column, data_type: DataType) -> Iterator[Leaf]:
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                yield from _leaves((*path, field.name), column.getField(field.name), field.dataType)
        case ArrayType() | MapType():
            return
        case _:
            yield Leaf(path, column, data_type)


def text_of(value: Column, data_type: DataType | None) -> Column:
    """Return a value as a string; a binary value as hexadecimal digits."""
    return f.hex(value) if isinstance(data_type, BinaryType) else value.cast("string")


class _Field(NamedTuple):
    """Iceberg's field of a leaf."""

    name: str
    field_id: int
    type: PrimitiveType


class FileMetrics:
    """The metrics that an Iceberg table declares for its files."""

    def __init__(self, schema: Schema, files: DataFrame, *, is_complete: bool) -> None:
        """Use the declared metrics.

        Args:
            files: Iceberg's metadata table `files`.
            is_complete: Whether all files are measured, so that a file without rows must be declared as empty.
        """
        self._schema = schema
        self._files = files
        self._is_complete = is_complete

    def measure(
        self, rows: DataFrame, columns: Sequence[str], groups: Sequence[str], sums: Sequence[tuple[str, Column]]
    ) -> DataFrame:
        """Return the measured metrics: one row for each run of a file's rows in a task, usually one for each file.

        Args:
            rows: Rows with the column `FILE`.
            columns: Names of the columns to measure.
            groups: Names of columns that have one value in a file and are part of the result.
            sums: Names and columns of numbers to sum.
        """
        leaves, fields = self._declared_leaves(rows.schema, columns)
        values = [_comparable(leaf).alias(f"c{number}") for number, leaf in enumerate(leaves)]
        types = {field.name: field.dataType.simpleString() for field in rows.select(*map(quoted, groups)).schema}
        measured = [(FILE, "string"), *types.items(), (ROWS, "bigint"), *((name, "bigint") for name, _ in sums)]
        shape = ", ".join(f"{quoted(name)} {kind}" for name, kind in (*measured, (_METRICS, _METRICS_TYPE)))
        summands = [number.alias(name) for name, number in sums]
        selected = rows.select(quoted(FILE), *map(quoted, groups), *summands, *values)
        return in_batches(selected, partial(_measured, fields, len(groups), len(sums)), shape)

    def wrong(self, measured: DataFrame, columns: Sequence[str], schema: StructType) -> tuple[int, list[WrongMetric]]:
        """Return the number of files with wrong metrics, and the first wrong metrics.

        Args:
            measured: The result of `measure`.
            schema: The schema of the measured rows.
        """
        parts = f.sum(quoted(ROWS)).alias("rows"), f.collect_list(quoted(_METRICS)).alias("parts")
        by_file = measured.groupBy(quoted(FILE)).agg(*parts)
        declared = self._files.select(f.col("file_path").alias(FILE), *_DECLARED)
        joined = declared.join(by_file, FILE, "left" if self._is_complete else "inner")
        _, fields = self._declared_leaves(schema, columns)
        shape = "file string, column string, fact string, declared string, actual string"
        wrong = in_batches(joined, partial(_wrong_of_batches, fields), shape)
        shown = [WrongMetric(*row) for row in wrong.sort("file").limit(SHOWN).collect()]
        return wrong.select("file").distinct().count() if shown else 0, shown

    def _declared_leaves(self, schema: StructType, columns: Sequence[str]) -> tuple[list[Leaf], list[_Field]]:
        """Return the columns for which any file has metrics; for a narrow table, all columns."""
        from catalog.iceberg.metrics import MOST_INFERRED

        leaves = leaves_of(schema, columns)
        fields = [_field(self._schema, leaf) for leaf in leaves]
        if len(leaves) <= MOST_INFERRED:
            return leaves, fields
        declared = self._declared_ids
        places = [place for place, field in enumerate(fields) if field.field_id in declared]
        return [leaves[place] for place in places], [fields[place] for place in places]

    @cached_property
    def _declared_ids(self) -> frozenset[int]:
        counted = f.concat(*[f.coalesce(f.map_keys(name), f.array().cast("array<int>")) for name in _DECLARED[1:]])
        ids = self._files.select(f.explode(f.array_distinct(counted))).distinct()
        return frozenset(field_id for (field_id,) in ids.collect())


def _field(schema: Schema, leaf: Leaf) -> _Field:
    struct: Any = schema.as_struct()
    for name in leaf.path:
        field = next(field for field in struct.fields if field.name == name)
        struct = field.field_type
    return _Field(leaf.name, field.field_id, struct)


def _comparable(leaf: Leaf) -> Column:
    """Return values that Arrow orders as Iceberg does; prefixes of strings as bytes, which may be invalid UTF-8."""
    is_long = isinstance(leaf.data_type, (StringType, BinaryType))
    return f.substring(leaf.column.cast("binary"), 1, COMPARED_BYTES) if is_long else leaf.column


@dataclass
class _Metrics:
    """Metrics of a column: the numbers of nulls and NaNs, and the minimum and the maximum of the other values."""

    nulls: int
    nans: int
    low: Any
    high: Any

    def add(self, other: _Metrics) -> None:
        self.nulls += other.nulls
        self.nans += other.nans
        if other.low is not None:
            self.low = other.low if self.low is None else min(self.low, other.low)
            self.high = other.high if self.high is None else max(self.high, other.high)


@dataclass
class _Part:
    """Metrics of some rows of one file.

    Attributes:
        first: The file and the group values of the first row.
        counts: The number of rows, then the sums.
    """

    first: pyarrow.RecordBatch
    file: str
    counts: list[int]
    metrics: list[_Metrics]

    def add(self, other: _Part) -> None:
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        for ours, theirs in zip(self.metrics, other.metrics, strict=True):
            ours.add(theirs)


def _measured(
    fields: Sequence[_Field], group_count: int, sum_count: int, batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the metrics of each run of rows of one file, which may extend over several batches."""
    last: list[_Part] = []
    for batch in batches:
        parts = list(_parts(batch, group_count, sum_count))
        if last and parts and last[0].file == parts[0].file:
            last[0].add(parts.pop(0))
        if parts:
            *ended, newest = [*last, *parts]
            last = [newest]
            if ended:
                yield _batch_of(ended, fields, batch.schema.names[1 + group_count :][:sum_count])
    if last:
        yield _batch_of(last, fields, batch.schema.names[1 + group_count :][:sum_count])


def _parts(batch: pyarrow.RecordBatch, group_count: int, sum_count: int) -> Iterator[_Part]:
    """Yield the metrics of each run of rows of one file in a batch."""
    from pyarrow import compute

    first_sum, first_value = 1 + group_count, 1 + group_count + sum_count
    start = 0
    for end in compute.run_end_encode(batch.column(0)).run_ends.to_pylist():
        run = batch.slice(start, end - start)
        start = end
        first = run.slice(0, 1).select(list(range(first_sum)))
        sums = [compute.sum(column).as_py() or 0 for column in run.columns[first_sum:first_value]]
        metrics = list(map(_metrics_of, run.columns[first_value:]))
        yield _Part(first, first.column(0)[0].as_py(), [run.num_rows, *sums], metrics)


def _metrics_of(values: pyarrow.Array) -> _Metrics:
    import pyarrow
    from pyarrow import compute

    nulls, nans = values.null_count, 0
    if pyarrow.types.is_floating(values.type):
        is_nan = compute.is_nan(values)
        nans = compute.sum(is_nan).as_py() or 0
        values = values.filter(compute.invert(is_nan)) if nans else values
    ends = compute.min_max(values)
    return _Metrics(nulls, nans, _plain(ends["min"]), _plain(ends["max"]))


def _plain(value: Any) -> Any:
    """Return a Python value; for dates and times Arrow's number, because Python's years are limited to 1 to 9999."""
    return value.value if hasattr(value, "value") else value.as_py()


def _batch_of(parts: Sequence[_Part], fields: Sequence[_Field], sum_names: Sequence[str]) -> pyarrow.RecordBatch:
    import pyarrow

    kind = pyarrow.struct(
        [("nulls", pyarrow.int64()), ("nans", pyarrow.int64()), ("low", pyarrow.binary()), ("high", pyarrow.binary())]
    )
    first = pyarrow.Table.from_batches([part.first for part in parts]).combine_chunks().to_batches()[0]
    counts = [pyarrow.array(numbers, pyarrow.int64()) for numbers in zip(*(part.counts for part in parts), strict=True)]
    metrics = [
        [
            (column.nulls, column.nans, _serialized(field, column.low), _serialized(field, column.high))
            for field, column in zip(fields, part.metrics, strict=True)
        ]
        for part in parts
    ]
    return pyarrow.RecordBatch.from_arrays(
        [*first.columns, *counts, pyarrow.array(metrics, pyarrow.list_(kind))],
        names=[*first.schema.names, ROWS, *sum_names, _METRICS],
    )


def _serialized(field: _Field, value: Any) -> bytes | None:
    from pyiceberg.conversions import to_bytes

    return value if value is None or isinstance(value, bytes) else to_bytes(field.type, value)


def _wrong_of_batches(
    fields: Sequence[_Field], batches: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    shape = pyarrow.schema([(name, pyarrow.string()) for name in WrongMetric._fields])
    for batch in batches:
        # One row at a time, because a row has the metrics of all columns.
        for number in range(batch.num_rows):
            (row,) = batch.slice(number, 1).to_pylist()
            wrong = [metric._asdict() for metric in _wrong_of_file(fields, row)]
            if wrong:
                yield pyarrow.RecordBatch.from_pylist(wrong, shape)


def _wrong_of_file(fields: Sequence[_Field], row: Mapping[str, Any]) -> Iterator[WrongMetric]:
    file, rows = row[FILE], row["rows"] or 0
    record_count, values, nulls, nans, lower, upper = (
        row[name] if name == "record_count" else dict(row[name] or ()) for name in _DECLARED
    )
    if record_count != rows:
        yield WrongMetric(file, None, "record count", str(record_count), str(rows))
    for position, field in enumerate(fields):
        parts = [part[position] for part in row["parts"] or ()]
        bounds = lower.get(field.field_id), upper.get(field.field_id)
        counts = (
            ("value count", values, rows),
            ("null count", nulls, sum(part["nulls"] for part in parts)),
            ("NaN count", nans, sum(part["nans"] for part in parts)),
        )
        for fact, declared, actual in counts:
            count = declared.get(field.field_id)
            # Readers that delete by bounds take a missing count as zero.
            is_missing = count is None and actual and fact != "value count" and bounds != (None, None)
            if is_missing or count not in (None, actual):
                yield WrongMetric(file, field.name, fact, "none" if count is None else str(count), str(actual))
        for fact, bound, ends in zip(("lower bound", "upper bound"), bounds, _ends(field, parts), strict=True):
            yield from _wrong_bound(file, field, fact, bound, ends)


def _ends(field: _Field, parts: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
    lows = [_value(field, part["low"]) for part in parts if part["low"] is not None]
    highs = [_value(field, part["high"]) for part in parts if part["high"] is not None]
    return min(lows, default=None), max(highs, default=None)


def _wrong_bound(file: str, field: _Field, fact: str, bound: bytes | None, actual: Any) -> Iterator[WrongMetric]:
    if bound is None or actual is None:
        return
    from pyiceberg.types import BinaryType as Binary
    from pyiceberg.types import FixedType as Fixed
    from pyiceberg.types import StringType as Text

    is_long = isinstance(field.type, (Text, Binary, Fixed))
    declared = _value(field, bound[:COMPARED_BYTES] if is_long else bound)
    if declared > actual if fact == "lower bound" else declared < actual:
        yield WrongMetric(file, field.name, fact, _text(field, declared), _text(field, actual))


def _value(field: _Field, serialized: bytes) -> Any:
    """Return a value that compares as in Iceberg; strings stay bytes, which have the same order."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import StringType as Text

    return serialized if isinstance(field.type, Text) else from_bytes(field.type, serialized)


def _text(field: _Field, value: Any) -> str:
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import StringType as Text

    if isinstance(value, bytes):
        return value.decode(errors="replace") if isinstance(field.type, Text) else value.hex()
    try:
        return IdentityTransform().to_human_string(field.type, value)
    except (ValueError, OverflowError):
        # A date or time outside of Python's range.
        return str(value)
