"""Settings of Spark by which written files get the size that a table should have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"

_SHUFFLED_TO_WRITTEN = 2
"""Approximate ratio of the bytes of shuffled rows to the bytes of their Parquet files."""


def size_settings(target_bytes: int) -> dict[str, str]:
    """Return the settings for files of about this size."""
    return {ADVISORY: str(_SHUFFLED_TO_WRITTEN * target_bytes)}


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session for a block."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
