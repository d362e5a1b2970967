"""Rows that one step of a load has parsed, kept for the next step in the same Spark session.

Parsing text takes longer than writing it as Parquet, and a load needs the rows twice: to validate them before anything
is written, and to write them. Spark finds the kept rows by the plan that reads them, so the next step reads its files
as if nothing were kept, and parses them again if it reads them in another way, or in another application.

Plans are equal for files with the same names. Therefore rows are kept for one operation only, and no longer than until
the next step ends or another one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from catalog.files.filesystem import FileInfo

LEAST_BYTES = 8 << 20
"""The size of files that are parsed so quickly that keeping their rows gains nothing."""

_IS_SHARED = "spark.calve.session.shared"


@dataclass
class KeptRows:
    """The rows that an operation keeps; kept if the block of `keeping` ends without an error and has not dropped them.

    Attributes:
        operation_id: The operation for whose next step they are.
    """

    operation_id: str
    _frames: list[DataFrame] = field(default_factory=list)

    def keep(self, rows: DataFrame, files: Sequence[FileInfo]) -> None:
        """Keep the rows of files, in memory and on disk, from the first time that they are computed."""
        session = rows.sparkSession
        if session.conf.get(_IS_SHARED, "") and sum(file.size_bytes for file in files) >= LEAST_BYTES:
            self._frames.append(rows.persist())

    def drop(self) -> None:
        """Keep them no longer."""
        while self._frames:
            self._frames.pop().unpersist()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._frames)


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


def is_kept_for(operation_id: str) -> bool:
    """Return whether rows are kept for the next step of an operation."""
    return bool(_kept) and _kept.operation_id == operation_id


def drop_others(operation_id: str) -> None:
    """Drop the rows that are kept for other operations."""
    if _kept.operation_id != operation_id:
        _kept.drop()
