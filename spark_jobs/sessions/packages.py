"""Packages that Spark needs besides its own jars, from its start.

Executors do not find the classes of a jar that is added to a session later.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from catalog.errors import InvalidConfigurationError
from catalog.settings.environment import AVRO_PACKAGE, ICEBERG_PACKAGE, spark_packages
from spark_jobs.sessions.java_classes import java_class

_ICEBERG_CLASS = "org.apache.iceberg.spark.source.IcebergSource"
_AVRO_CLASS = "org.apache.spark.sql.avro.AvroFileFormat"


def has_packages(spark: SparkSession, *, avro: bool = False) -> bool:
    """Return whether a session can read Iceberg tables, and with `avro` also Hive's Avro tables."""
    return has_class(spark, _ICEBERG_CLASS) and (not avro or has_class(spark, _AVRO_CLASS))


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether a session's Java process has a class."""
    return bool(java_class(spark.sparkContext, "org.apache.spark.util.Utils").classIsLoadable(name))


def require_avro(spark: SparkSession) -> None:
    """Check that a session can read Avro files.

    Raises:
        InvalidConfigurationError: The package is missing.
    """
    if not has_class(spark, _AVRO_CLASS):
        raise InvalidConfigurationError(
            "Spark was started without the package to read Avro files; set CALVE_SPARK_PACKAGES to "
            f"{ICEBERG_PACKAGE},{AVRO_PACKAGE}, add the latter to spark.jars.packages of a session of your own, or put "
            "its jar into Spark's own folder"
        )


def require_packages(spark: SparkSession, *, avro: bool = False) -> None:
    """Check that a session can read Iceberg tables, and with `avro` also Hive's Avro tables.

    Raises:
        InvalidConfigurationError: A package is missing.
    """
    if not has_packages(spark, avro=avro):
        packages = ",".join(spark_packages(avro=avro)) or "its jars"
        raise InvalidConfigurationError(
            f"Spark was started without the packages to read Iceberg tables; start it with spark.jars.packages set to "
            f"{packages}, or put the jars into Spark's own folder"
        )
