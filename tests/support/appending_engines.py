"""A process of an engine that appends numbered rows to a published table, in many small commits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import make_url

MOST_ATTEMPTS = 30


def main(request: dict[str, Any]) -> None:
    """Append rows, and print the number of commits that lost against others and were made again.

    Args:
        request: `engine` (`spark` or `pyiceberg`), `url` of the catalog's database, `table`, the `first` number,
            the number of `commits`, and of `rows` in each.
    """
    append = {"spark": _spark, "pyiceberg": _pyiceberg}[request["engine"]](request["url"], request["table"])
    repeated, size = 0, request["rows"]
    print("ready", flush=True)
    for number in range(request["commits"]):
        first = request["first"] + number * size
        for _ in range(MOST_ATTEMPTS):
            try:
                append(range(first, first + size))
                break
            except Exception as error:
                if not _has_lost(error):
                    raise
                repeated += 1
        else:
            raise RuntimeError(f"the rows from {first} on could not be appended")
    print(json.dumps({"repeated": repeated}), flush=True)


def _has_lost(error: Exception) -> bool:
    """Return whether a commit failed because of another one, or because SQLite was locked by one."""
    text = f"{type(error).__name__} {error}"
    return any(sign in text for sign in ("CommitFailedException", "SQLITE_BUSY", "database is locked", "Concurrent"))


def value_of(number: int) -> int:
    """Return the value of the partition column in a row."""
    return number % 40


def _spark(url: str, table: str) -> Callable[[range], None]:
    from pyspark.sql import SparkSession

    from catalog.iceberg.jdbc import catalog_settings
    from catalog.settings.environment import package_settings

    database = make_url(url)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.session.timeZone", "UTC")
    settings = {**package_settings(database=database.get_backend_name()), **catalog_settings(database)}
    spark = builder.config(map={**settings, "spark.sql.catalog.calve.cache-enabled": "false"}).getOrCreate()

    def append(numbers: range) -> None:
        rows = spark.range(numbers.start, numbers.stop, 1, 1).selectExpr("id AS n", "CAST(id % 40 AS int) AS c")
        rows.writeTo(f"calve.{table}").append()

    return append


def _pyiceberg(url: str, table: str) -> Callable[[range], None]:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    iceberg = SqlCatalog("calve", uri=url)

    def append(numbers: range) -> None:
        values = {"n": pa.array(numbers, pa.int64()), "c": pa.array(map(value_of, numbers), pa.int32())}
        iceberg.load_table(table).append(pa.table(values))

    return append


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
