"""What the environment says of this installation."""

from __future__ import annotations

import os
from pathlib import Path

from catalog.errors import InvalidConfigurationError

REPOSITORY = Path(__file__).resolve().parents[2]


def state_folder() -> Path:
    """Return the folder of job logs and quality reports: `CALVE_HOME`, or `.calve` beside the project's folders."""
    return Path(os.environ.get("CALVE_HOME") or REPOSITORY / ".calve").absolute()


def tables_path() -> Path:
    """Return the path of the YAML list of tables: `CALVE_TABLES`, or `tables.yaml` beside the project's folders."""
    return Path(os.environ.get("CALVE_TABLES") or REPOSITORY / "tables.yaml")


def spark_pool() -> str:
    """Return the Airflow pool that bounds how many Spark jobs of mapped tasks run at once: `CALVE_SPARK_POOL`.

    Unless it is set, Airflow's own pool, which always exists: tasks of a pool that does not would wait for ever.
    """
    return os.environ.get("CALVE_SPARK_POOL") or "default_pool"


def new_partition_limit() -> int:
    """Return how many partitions one load may add to a RANGE_INTERVAL table: `CALVE_MAX_NEW_PARTITIONS`.

    Raises:
        InvalidConfigurationError: It is no whole number.
    """
    text = os.environ.get("CALVE_MAX_NEW_PARTITIONS") or "1000"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidConfigurationError(f"CALVE_MAX_NEW_PARTITIONS is {text!r}, expected a whole number such as 1000")
    return int(text)


ICEBERG_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13:4.1.1"
"""What Spark 4.1 reads Iceberg tables, and Avro files, with: Maven coordinates that are tested together."""

_DRIVERS = {"postgresql": "org.postgresql:postgresql:42.7.14", "sqlite": "org.xerial:sqlite-jdbc:3.53.4.0"}


def spark_packages(*, avro: bool = False, database: str | None = None) -> tuple[str, ...]:
    """Return what Spark needs to read Iceberg tables, as Maven coordinates: those in `CALVE_SPARK_PACKAGES`.

    They stand there with commas between them; `none` is for a Spark that has all of them among its jars. Unless it is
    set, the versions that are tested together, which Spark gets from Maven Central when it first needs them.

    Args:
        avro: Hive's Avro tables are read, too.
        database: `postgresql` or `sqlite`, where Spark is to find the tables in the catalog's own database.
    """
    said = os.environ.get("CALVE_SPARK_PACKAGES")
    if said:
        return () if said.lower() == "none" else tuple(each.strip() for each in said.split(",") if each.strip())
    return (ICEBERG_PACKAGE, *((AVRO_PACKAGE,) if avro else ()), *((_DRIVERS[database],) if database else ()))


def package_settings(*, avro: bool = False, database: str | None = None) -> dict[str, str]:
    """Return the setting by which Spark gets `spark_packages`; none where it has all of them."""
    packages = spark_packages(avro=avro, database=database)
    return {"spark.jars.packages": ",".join(packages)} if packages else {}


def verification_schedule() -> str | None:
    """Return when all partition indexes are verified: `CALVE_VERIFY_SCHEDULE`, a cron expression, preset or `none`."""
    return _schedule("CALVE_VERIFY_SCHEDULE")


def maintenance_schedule() -> str | None:
    """Return when files and operations are cleared away: `CALVE_MAINTENANCE_SCHEDULE`, as the others."""
    return _schedule("CALVE_MAINTENANCE_SCHEDULE")


def advisor_schedule() -> str | None:
    """Return when the partitions of tables are looked at: `CALVE_ADVISOR_SCHEDULE`, as the others."""
    return _schedule("CALVE_ADVISOR_SCHEDULE")


def _schedule(variable: str) -> str | None:
    schedule = os.environ.get(variable) or "@daily"
    return None if schedule.lower() == "none" else schedule
