"""The functions that the list of tables may name: those of the Spark that runs the jobs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from catalog.settings.spark_functions import SPARK_FUNCTIONS


def test_the_known_functions_are_those_of_spark(spark: SparkSession) -> None:
    listed = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert {name for name in listed if name[0].isalpha()} == SPARK_FUNCTIONS
