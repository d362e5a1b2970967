"""Rows that one step of a load has parsed, kept for the next step in the same Spark session.

Parsing text takes longer than writing it as Parquet, and a load needs the rows twice: to validate them before anything
is written, and to write them. To write them, they have to be shuffled to their partitions, and what is shuffled is in
files. So the first step shuffles them and reads these files, and the next step reads them again. Nothing else has to be
stored; with Spark's cache, storing the rows took as long as parsing them.

The next step finds the kept rows by the plan that reads its files, and parses them again if it reads them in another
way, or in another application. Plans are equal for files with the same names. Therefore rows are kept for one operation
only, and no longer than until the next step ends or another one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from catalog.files.filesystem import FileInfo

LEAST_BYTES = 8 << 20
"""The size of files that are parsed so quickly that keeping their rows gains nothing."""

_IS_SHARED = "spark.calve.session.shared"
_REBALANCES = "spark.sql.adaptive.enabled"
"""Without it, Spark ignores the hint by which rows are shuffled."""


@dataclass(frozen=True)
class _Shuffled:
    """Rows in the files of a shuffle.

    Attributes:
        plan: The rows as they were parsed, from which the files are made again if they are lost.
        rows: Spark's RDD of internal rows, which belongs to no session.
        schema: Theirs, as an object of the JVM.
    """

    plan: DataFrame
    rows: Any
    schema: Any

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows in a session."""
        return DataFrame(spark._jsparkSession.internalCreateDataFrame(self.rows, self.schema, False), spark)


@dataclass
class KeptRows:
    """The rows that an operation keeps; kept if the block of `keeping` ends without an error and has not dropped them.

    Attributes:
        operation_id: The operation for whose next step they are.
    """

    operation_id: str
    _shuffled: _Shuffled | None = None

    def keep(self, parsed: DataFrame, files: Sequence[FileInfo], names: Sequence[str], *without: str) -> DataFrame:
        """Parse the rows of files, and return them for other uses, shuffled; or as they are, if they are not kept.

        Args:
            names: The columns by which the rows are shuffled, which have equal values only in one partition.
            without: Columns that are left out.
        """
        self.drop()
        spark = parsed.sparkSession
        is_large = sum(file.size_bytes for file in files) >= LEAST_BYTES
        if not spark.conf.get(_IS_SHARED, "") or spark.conf.get(_REBALANCES) != "true" or not is_large:
            return parsed
        shuffled = parsed.drop(*without).hint("rebalance", *[f.col(f"`{name}`") for name in names])._jdf
        self._shuffled = _Shuffled(parsed, shuffled.queryExecution().toRdd(), shuffled.schema())
        return self._shuffled.frame(spark)

    def find(self, parsed: DataFrame) -> DataFrame | None:
        """Return the rows of files, shuffled, if they are kept as they would be parsed now."""
        if self._shuffled is None or not self._shuffled.plan.sameSemantics(parsed):
            return None
        return self._shuffled.frame(parsed.sparkSession)

    def drop(self) -> None:
        """Keep them no longer."""
        if self._shuffled is not None:
            # Spark may have ended meanwhile.
            with suppress(Py4JError, OSError):
                self._shuffled.rows.cleanShuffleDependencies(False)
            self._shuffled = None

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return self._shuffled is not None


_kept = KeptRows("")


def share(spark: SparkSession) -> SparkSession:
    """Return a session after noting that the next step of an operation will find in it what this one keeps."""
    spark.conf.set(_IS_SHARED, "true")
    return spark


@contextmanager
def keeping(operation_id: str) -> Iterator[KeptRows]:
    """Yield what keeps rows for the next step of an operation, which gets them if the block ends without an error."""
    global _kept
    _kept.drop()
    rows = KeptRows(operation_id)
    try:
        yield rows
    except BaseException:
        rows.drop()
        raise
    _kept = rows


@contextmanager
def dropping() -> Iterator[None]:
    """Drop the rows that the step before has kept, at the end of the block."""
    try:
        yield
    finally:
        _kept.drop()


def kept_for(operation_id: str) -> KeptRows:
    """Return the rows that are kept for the next step of an operation."""
    return _kept if _kept.operation_id == operation_id else KeptRows(operation_id)


def drop_others(operation_id: str) -> None:
    """Drop the rows that are kept for other operations."""
    if _kept.operation_id != operation_id:
        _kept.drop()
