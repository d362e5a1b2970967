"""What Spark needs besides its own jars, for a session that was started without it."""

from __future__ import annotations

import logging

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog.environment import spark_packages
from catalog.errors import InvalidConfigurationError

log = logging.getLogger("spark_jobs.packages")

_ICEBERG_CLASS = "org.apache.iceberg.spark.source.IcebergSource"
_AVRO_CLASS = "org.apache.spark.sql.avro.AvroFileFormat"


def with_packages(spark: SparkSession, *, avro: bool = False) -> None:
    """Let a session read Iceberg tables; downloads what is missing, and does nothing when all is there.

    Args:
        avro: Hive's Avro tables, too.

    Raises:
        InvalidConfigurationError: Something is missing and cannot be had.
    """
    needed = [_ICEBERG_CLASS, *([_AVRO_CLASS] if avro else [])]
    if all(_is_there(spark, each) for each in needed):
        return
    packages = spark_packages(avro=avro)
    try:
        for package in packages:
            log.info("Spark gets the package %s", package)
            spark.sql(f"ADD JAR ivy://{package}?transitive=false")
    except PySparkException as error:
        raise _unavailable(packages, str(error).partition("\n")[0]) from error
    if missing := [each for each in needed if not _is_there(spark, each)]:
        raise _unavailable(packages, f"they do not have the class {missing[0]}")


def _is_there(spark: SparkSession, name: str) -> bool:
    return bool(spark._jvm.org.apache.spark.util.Utils.classIsLoadable(name))  # type: ignore[union-attr]


def _unavailable(packages: tuple[str, ...], reason: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"Spark needs Iceberg's runtime and does not get it ({', '.join(packages) or 'no packages'}): {reason}. Put "
        "the jars into Spark's own folder, or let CALVE_SPARK_PACKAGES name packages that Maven Central has"
    )
