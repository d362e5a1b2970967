"""Filters that a migrated table has to answer: each must find a row that the Hive table has.

A scan reads every file; a filter lets readers skip files by their manifests, and parts of files by their footers,
dictionaries and indexes. The rows asked for have the minimum, the maximum, a null or a NaN of columns, and values in
between in the others. A condition names the values of all columns, so whichever metric is wrong loses the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
import pyarrow.compute
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DoubleType, FloatType, TimestampNTZType

from spark_jobs.file_metrics import Leaf, leaves_of, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUESTIONS = 12
"""Rows that are asked for, at most: those that have the most minima, maxima, nulls and NaNs of columns."""
_SAMPLED_ROWS = 4_000
_LEAVES = 100
_NAN = "NaN"
_NUMBER = "calve/number"


class _Question(NamedTuple):
    """A row to ask for.

    Attributes:
        texts: The values of its columns as text; None is null.
        row_count: How many rows of the sample have these values.
    """

    file: str
    texts: tuple[str | None, ...]
    row_count: int


@dataclass(frozen=True)
class LostRows:
    """Rows that a filter does not find.

    Attributes:
        columns: Those by whose values alone they are not found; all if each of these finds them.
        row_count: How many there are at least.
    """

    file: str
    columns: tuple[str, ...]
    row_count: int
    found_count: int

    def __str__(self) -> str:
        """Return what is wrong, a part of a sentence."""
        return (
            f"column {', '.join(self.columns)}: a filter finds {self.found_count:,} of {self.row_count:,} row(s) of "
            f"{self.file}"
        )


def lost_rows(samples: Sequence[DataFrame], iceberg: DataFrame, names: Sequence[str], key_count: int) -> list[LostRows]:
    """Return the rows of some partitions that filters of the Iceberg table's reader do not find.

    Args:
        samples: Rows of the Hive table, by partition, of which a limited number is looked at.
        iceberg: All rows, as Iceberg's reader filters them.
        names: The columns of both, partition keys first.
        key_count: How many of them are partition keys.
    """
    leaves = leaves_of(iceberg.schema, names)[:_LEAVES]
    questions = _questions(_sample(samples, leaves), leaves)
    found = _found(iceberg, leaves, questions, key_count)
    lost = []
    for question, count in zip(questions, found, strict=True):
        if count < question.row_count:
            alone = [_condition([leaf], [text]) for leaf, text in zip(leaves, question.texts, strict=True)]
            found_alone = zip(leaves, _counts(iceberg, alone), strict=True)
            columns = tuple(leaf.name for leaf, number in found_alone if number < question.row_count)
            lost.append(LostRows(question.file, columns or tuple(names), question.row_count, count))
    return lost


def _sample(samples: Sequence[DataFrame], leaves: Sequence[Leaf]) -> pyarrow.Table:
    """Return rows: the file, then the values of the leaves, then the same as text."""
    values = [leaf.column.cast(leaf.data_type) for leaf in leaves]
    texts = [text_of(value, leaf.data_type) for value, leaf in zip(values, leaves, strict=True)]
    columns = [column.alias(f"c{n}") for n, column in enumerate((f.input_file_name(), *values, *texts))]
    limit = max(1, _SAMPLED_ROWS // max(1, len(leaves) // 20) // max(1, len(samples)))
    return reduce(DataFrame.union, [rows.select(*columns).limit(limit) for rows in samples]).toArrow()


def _found(iceberg: DataFrame, leaves: Sequence[Leaf], questions: Sequence[_Question], key_count: int) -> list[int]:
    """Return how many rows there are of each question.

    Questions of different partitions are asked at once: the values of the keys tell the rows apart, and whether a
    reader skips a file depends on the one question of the file's partition.
    """
    if not key_count:
        return _counts(iceberg, [_condition(leaves, question.texts) for question in questions])
    rounds: dict[int, dict[tuple[str | None, ...], int]] = {}
    asked: Counter[tuple[str | None, ...]] = Counter()
    for number, question in enumerate(questions):
        keys = question.texts[:key_count]
        rounds.setdefault(asked[keys], {})[keys] = number
        asked[keys] += 1
    texts = [text_of(leaf.column, leaf.data_type).alias(f"k{n}") for n, leaf in enumerate(leaves[:key_count])]
    scans = [
        iceberg.where(reduce(or_, (_condition(leaves, questions[number].texts) for number in numbers.values()))).select(
            f.lit(position).alias(_NUMBER), *texts
        )
        for position, numbers in rounds.items()
    ]
    counts = dict.fromkeys(range(len(questions)), 0)
    if scans:
        columns = [f"`{_NUMBER}`", *(f"k{n}" for n in range(key_count))]
        for position, *values, count in reduce(DataFrame.union, scans).groupBy(*columns).count().collect():
            counts[rounds[position][tuple(values)]] = count
    return list(counts.values())


def _questions(sample: pyarrow.Table, leaves: Sequence[Leaf]) -> list[_Question]:
    """Choose rows so that few of them have the extremes of all columns, and one from the middle of the sample."""
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
    """Yield which rows have null, NaN, the minimum, and the maximum."""
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
    return reduce(and_, (_has(leaf, text) for leaf, text in zip(leaves, texts, strict=True)))


def _has(leaf: Leaf, text: str | None) -> Column:
    if text is None:
        # ORC's statistics do not count the nulls of a struct for its fields: readers skip them, of Hive tables, too.
        return leaf.column.isNull() if len(leaf.path) == 1 else f.lit(True)
    if isinstance(leaf.data_type, (FloatType, DoubleType)):
        if text == _NAN:
            return f.isnan(leaf.column)
        if float(text) == 0:
            # Statistics tell -0.0 from 0.0, SQL does not: a filter for one loses the other, in Hive's ORC files, too.
            return leaf.column.between(_literal(leaf, "-0.0"), _literal(leaf, "0.0"))
    return leaf.column == (f.unhex(f.lit(text)) if isinstance(leaf.data_type, BinaryType) else _literal(leaf, text))


def _literal(leaf: Leaf, text: str) -> Column:
    literal = f.lit(text)
    if isinstance(leaf.data_type, TimestampNTZType):
        return literal.cast("timestamp").cast(leaf.data_type)
    return literal.cast(leaf.data_type)


def _counts(iceberg: DataFrame, conditions: Sequence[Column]) -> list[int]:
    """Return how many rows each condition finds, all in one job."""
    if not conditions:
        return []
    found = [
        iceberg.where(condition).select(f.lit(number).alias(_NUMBER)) for number, condition in enumerate(conditions)
    ]
    counted = reduce(DataFrame.union, found).groupBy(f"`{_NUMBER}`").count().collect()
    counts = {row[0]: row[1] for row in counted}
    return [counts.get(number, 0) for number in range(len(conditions))]
