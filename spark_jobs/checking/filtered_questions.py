"""Filters for a migrated table, each of which must find a row of the Hive table.

A scan reads every file; with a filter, readers skip files by their manifests, and parts of files by their footers,
dictionaries and indexes. The selected rows have the minimum, the maximum, a null or a NaN in some columns, and values
in between in the others. A condition contains the values of all columns, so that any wrong metric loses the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
import pyarrow.compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DoubleType, FloatType, StringType, TimestampNTZType

from spark_jobs.checking.file_metrics import Leaf, leaves_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUESTIONS = 12
"""Maximum number of rows to find: those with the most minima, maxima, nulls and NaNs of columns."""
_SAMPLED_ROWS = 4_000
_LEAVES = 100
LONGEST = 64
"""Maximum length of a string, in characters, or of a binary value, in bytes, that a question contains completely; of a
longer value it contains a prefix of this length and a hash."""
_NAN = "NaN"
_NUMBER = "calve/number"


class _Question(NamedTuple):
    """A row that a filter must find.

    Attributes:
        texts: The values of its columns as `_text` formats them; None is null.
        row_count: Number of rows of the sample with these values.
    """

    file: str
    texts: tuple[str | None, ...]
    row_count: int


@dataclass(frozen=True)
class LostRows:
    """Rows that a filter does not find.

    Attributes:
        columns: The columns whose single condition does not find the rows; all if each single condition finds them.
        row_count: Minimum number of matching rows.
        found_count: Number of rows that the filter finds.
    """

    file: str
    columns: tuple[str, ...]
    row_count: int
    found_count: int

    def __str__(self) -> str:
        """Return a description of the problem, as a clause."""
        return (
            f"column {', '.join(self.columns)}: a filter finds {self.found_count:,} of {self.row_count:,} row(s) of "
            f"{self.file}"
        )


def lost_rows(samples: Sequence[DataFrame], iceberg: DataFrame, names: Sequence[str], key_count: int) -> list[LostRows]:
    """Return the rows of some partitions that filters of Iceberg's reader do not find.

    Args:
        samples: Rows of the Hive table, by partition; a limited number is used.
        iceberg: All rows of the Iceberg table, read by Iceberg's reader.
        names: The columns of both, partition keys first.
        key_count: Number of partition keys.
    """
    leaves = leaves_of(iceberg.schema, names)[:_LEAVES]
    if not leaves:
        # Filters cannot compare arrays and maps.
        return []
    questions = _questions(_sample(samples, leaves), leaves)
    found_counts = _found(iceberg, leaves, questions, key_count)
    lost = []
    for question, count in zip(questions, found_counts, strict=True):
        if count < question.row_count:
            single = [{n: _has(leaf, text)} for n, (leaf, text) in enumerate(zip(leaves, question.texts, strict=True))]
            found_by_single = zip(leaves, _counts(iceberg, single), strict=True)
            columns = tuple(leaf.name for leaf, number in found_by_single if number < question.row_count)
            lost.append(LostRows(question.file, columns or tuple(names), question.row_count, count))
    return lost


def _sample(samples: Sequence[DataFrame], leaves: Sequence[Leaf]) -> pyarrow.Table:
    """Return sampled rows: the file, then the values of the leaves with prefixes of strings, then their strings."""
    values = [leaf.column.cast(leaf.data_type) for leaf in leaves]
    starts = [_start(value, leaf) for value, leaf in zip(values, leaves, strict=True)]
    texts = [_text(value, leaf) for value, leaf in zip(values, leaves, strict=True)]
    columns = [column.alias(f"c{n}") for n, column in enumerate((f.input_file_name(), *starts, *texts))]
    limit = max(1, _SAMPLED_ROWS // max(1, len(leaves) // 20) // max(1, len(samples)))
    return reduce(DataFrame.union, [rows.select(*columns).limit(limit) for rows in samples]).toArrow()


def _start(value: Column, leaf: Leaf) -> Column:
    """Return a value that Arrow orders as SQL does, of limited length."""
    is_long = isinstance(leaf.data_type, (StringType, BinaryType))
    # As bytes, because a prefix of a string may be invalid UTF-8.
    return f.substring(value.cast("binary"), 1, LONGEST) if is_long else value


def _text(value: Column, leaf: Leaf) -> Column:
    """Return a value as a short string, which is the same for equal values.

    For strings and binary values, it is a prefix in hexadecimal digits, and for long ones also a colon and a hash of
    the value.
    """
    match leaf.data_type:
        case StringType() | BinaryType():
            start = f.hex(f.substring(value, 1, LONGEST))
            long = f.concat(start, f.lit(":"), f.xxhash64(value).cast("string"))
            return f.when(f.length(value) > LONGEST, long).otherwise(start)
        case FloatType() | DoubleType():
            # -0.0 equals 0.0.
            return f.when(value == 0, "0.0").otherwise(value.cast("string"))
    return value.cast("string")


def _found(iceberg: DataFrame, leaves: Sequence[Leaf], questions: Sequence[_Question], key_count: int) -> list[int]:
    """Return the number of rows that the filter of each question finds.

    One query contains questions of different partitions: the key values tell their rows apart, and whether a reader
    skips a file depends only on the question of the file's partition.
    """
    rounds: dict[int, dict[int, Column]] = {}
    rounds_of_keys: Counter[tuple[str | None, ...]] = Counter()
    for number, question in enumerate(questions):
        keys = question.texts[:key_count]
        rounds.setdefault(rounds_of_keys[keys], {})[number] = _condition(leaves, question.texts)
        rounds_of_keys[keys] += 1
    by_keys = [_condition(leaves[:key_count], question.texts[:key_count]) for question in questions]
    return _counts(iceberg, list(rounds.values()), by_keys)


def _questions(sample: pyarrow.Table, leaves: Sequence[Leaf]) -> list[_Question]:
    """Return a few rows that together have the extremes of all columns, and one from the middle of the sample."""
    if not sample.num_rows:
        return []
    texts = list(zip(*(column.to_pylist() for column in sample.columns[1 + len(leaves) :]), strict=True))
    alike = Counter(texts)
    rows = [*_chosen_rows(sample.columns[1 : 1 + len(leaves)]), sample.num_rows // 2]
    chosen = {texts[row]: row for row in reversed(rows)}
    return [_Question(sample.column(0)[row].as_py(), values, alike[values]) for values, row in chosen.items()]


def _chosen_rows(columns: Sequence[pyarrow.ChunkedArray]) -> Iterator[int]:
    import numpy

    masks = [mask for column in columns for mask in _extremes(column)]
    missing = numpy.array([mask for mask in masks if mask.any()]).T
    for _ in range(QUESTIONS - 1):
        if not missing.size:
            return
        row = int(missing.sum(axis=1).argmax())
        yield row
        missing = missing[:, ~missing[row]]


def _extremes(values: pyarrow.ChunkedArray) -> Iterator[NDArray[Any]]:
    """Yield masks of the rows that have null, NaN, the minimum, and the maximum."""
    compute = pyarrow.compute
    yield compute.is_null(values).to_numpy()
    if pyarrow.types.is_floating(values.type):
        is_nan = compute.is_nan(values).fill_null(False)
        yield is_nan.to_numpy()
        values = compute.if_else(is_nan, pyarrow.scalar(None, values.type), values)
    ends = compute.min_max(values)
    for end in (ends["min"], ends["max"]):
        if end.is_valid:
            yield compute.equal(values, end).fill_null(False).to_numpy()


def _condition(leaves: Sequence[Leaf], texts: Sequence[str | None]) -> Column:
    return reduce(and_, (_has(leaf, text) for leaf, text in zip(leaves, texts, strict=True)), f.lit(True))


def _has(leaf: Leaf, text: str | None) -> Column:
    if text is None:
        # ORC statistics do not count the nulls of a struct for its fields, so readers skip them, also in Hive tables.
        return leaf.column.isNull() if len(leaf.path) == 1 else f.lit(True)
    if isinstance(leaf.data_type, (StringType, BinaryType)):
        return _has_bytes(leaf, text)
    if isinstance(leaf.data_type, (FloatType, DoubleType)):
        if text == _NAN:
            return f.isnan(leaf.column)
        if float(text) == 0:
            # Statistics distinguish -0.0 from 0.0, and SQL does not: a filter for one loses the other, also in ORC
            # files of Hive tables.
            return leaf.column.between(_literal(leaf, "-0.0"), _literal(leaf, "0.0"))
    return leaf.column == _literal(leaf, text)


def _has_bytes(leaf: Leaf, text: str) -> Column:
    digits, _, value_hash = text.partition(":")
    value = bytes.fromhex(digits)
    if isinstance(leaf.data_type, BinaryType):
        literal = f.lit(value)
        has_start = leaf.column >= literal
    else:
        try:
            literal = f.lit(value.decode())
        except UnicodeDecodeError:
            # No filter can contain it: Iceberg's readers decode invalid UTF-8 to another string.
            return f.lit(True)
        has_start = leaf.column.startswith(literal)
    return has_start & (f.xxhash64(leaf.column) == int(value_hash)) if value_hash else leaf.column == literal


def _literal(leaf: Leaf, text: str) -> Column:
    literal = f.lit(text)
    if isinstance(leaf.data_type, TimestampNTZType):
        return literal.cast("timestamp").cast(leaf.data_type)
    return literal.cast(leaf.data_type)


def _counts(iceberg: DataFrame, rounds: Sequence[Mapping[int, Column]], by_keys: Sequence[Column] = ()) -> list[int]:
    """Return the number of rows that each condition finds, in one job.

    Args:
        rounds: The conditions, numbered from 0; those of one round are one query.
        by_keys: Conditions that tell the rows of a round apart.
    """
    if not rounds:
        return []
    matches = []
    for conditions in rounds:
        number, *others = (f.when(by_keys[n], n) if len(conditions) > 1 else f.lit(n) for n in conditions)
        rows = iceberg.where(reduce(or_, conditions.values()))
        matches.append(rows.select(f.coalesce(number, *others).alias(_NUMBER)))
    counted = reduce(DataFrame.union, matches).groupBy(f"`{_NUMBER}`").count().collect()
    counts = {row[0]: row[1] for row in counted}
    return [counts.get(number, 0) for number in range(sum(map(len, rounds)))]
