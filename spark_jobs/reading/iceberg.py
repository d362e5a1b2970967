"""Iceberg tables as DataFrames by their metadata file, also tables that no catalog shows yet."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from catalog.errors import InvalidConfigurationError
from catalog.settings.environment import ICEBERG_PACKAGE
from spark_jobs.reading.sources import spark_path


def read_metadata_file(
    spark: SparkSession,
    metadata_location: str,
    metadata_table: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of the current snapshot of the table that a `…metadata.json` file describes.

    Args:
        metadata_table: `snapshots`, `files` or another metadata table, whose rows to return instead.
        options: Options of Iceberg's reader.

    Raises:
        InvalidConfigurationError: The session does not have Iceberg's runtime.

    Source: Iceberg's `IcebergSource` and `HadoopTables.load`, which accept the path of a metadata file as a table, and
    the name of a metadata table after `#`.
    """
    try:
        path = spark_path(metadata_location) + (f"#{metadata_table}" if metadata_table else "")
        return spark.read.format("iceberg").options(**(options or {})).load(path)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND" and "Failed to find data source" not in str(error):
            raise
        raise InvalidConfigurationError(
            f"{metadata_location} cannot be read, because Spark does not have Iceberg's runtime; add the package "
            f"{ICEBERG_PACKAGE} to `spark.jars.packages`"
        ) from error
