"""An Iceberg table as a DataFrame, by the file of its metadata: also one that no catalog shows yet."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from catalog.errors import InvalidConfigurationError
from spark_jobs.sources import spark_path

ICEBERG_VERSION = "1.12.0"
"""Of Iceberg's runtime that is tested with this Spark."""


def runtime_package(spark: SparkSession) -> str:
    """Return the Maven coordinates of Iceberg's runtime for a session's Spark."""
    version = ".".join(spark.version.split(".")[:2])
    return f"org.apache.iceberg:iceberg-spark-runtime-{version}_2.13:{ICEBERG_VERSION}"


def read_metadata_file(spark: SparkSession, metadata_location: str) -> DataFrame:
    """Return the rows of the current snapshot of the table that a `…metadata.json` file describes.

    Raises:
        InvalidConfigurationError: The session does not have Iceberg's runtime.

    Source: Iceberg's `IcebergSource` and `HadoopTables.load`, which take the path of a metadata file for a table.
    """
    try:
        return spark.read.format("iceberg").load(spark_path(metadata_location))
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_NOT_FOUND" and "Failed to find data source" not in str(error):
            raise
        raise InvalidConfigurationError(
            f"{metadata_location} cannot be read, because Spark does not have Iceberg's runtime; give Spark the "
            f"package {runtime_package(spark)} in `spark.jars.packages`"
        ) from error
