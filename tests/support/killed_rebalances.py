"""A process with a Spark session that makes one change or one load, and exits at a point."""

from __future__ import annotations

import json
import sys
from typing import Any

from catalog import Catalog
from catalog.rebalancing.changes import change_from_json


def main(text: str) -> None:
    """Make the change or load of a JSON object with `url`, `operation`, `table`, and `change` or `first` and `end`."""
    from pyspark.sql import SparkSession

    from spark_jobs.rebalance import rebalance
    from spark_jobs.writing.scheme_loading import load_rows

    asked: dict[str, Any] = json.loads(text)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "4").config("spark.driver.host", "127.0.0.1").getOrCreate()
    with Catalog.open(asked["url"]) as catalog:
        if "change" in asked:
            rebalance(spark, catalog, asked["operation"], asked["table"], change_from_json(asked["change"]))
        else:
            rows = spark.range(asked["first"], asked["end"]).selectExpr("id as n", "cast(id as int) as c")
            load_rows(spark, catalog, asked["operation"], asked["table"], rows)


if __name__ == "__main__":
    main(sys.argv[1])
