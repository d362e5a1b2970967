"""Settings from environment variables."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path

from catalog.errors import InvalidConfigurationError

REPOSITORY = Path(__file__).resolve().parents[2]

# Small statements and jobs spend most of their time on starting the JVM; the C1 compiler and the serial collector halve
# it. With C1 alone, Java reserves 48 MB for compiled code, which the classes that Spark generates fill after a minute
# or two of statements. Java then stops compiling, and may end threads of Spark, so that a job waits for ever.
# A JVM that cannot use the archive of classes, because its class path differs, starts without it; its warning would be
# among the results of `calve sql`.
SPARK_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -Xlog:cds*=error"
"""Options of the JVM for local sessions and submitted jobs on this machine."""


def state_folder() -> Path:
    """Return the folder of what belongs to this host, such as job logs: `CALVE_HOME`.

    The default is `.calve` in the repository, or in the user's home if Calve was installed as a package.
    """
    return Path(os.environ.get("CALVE_HOME") or (REPOSITORY if _is_repository() else Path.home()) / ".calve").absolute()


def default_warehouse() -> str | None:
    """Return the folder or URI of databases without a location: `CALVE_WAREHOUSE`; None if it is not set, or blank."""
    warehouse = os.environ.get("CALVE_WAREHOUSE", "")
    # Scripts and containers pass on variables that are not set as empty ones.
    return warehouse if warehouse.strip() else None


def jobs_folder() -> Path:
    """Return the folder of the logs of the Spark jobs that were submitted on this host."""
    return state_folder() / "jobs"


def quality_pages() -> str:
    """Return the folder or URI of the pages of quality checks: `CALVE_QUALITY_PAGES`.

    The default is a folder of the warehouse, which all workers reach; without a warehouse, one of this host.
    """
    if pages := os.environ.get("CALVE_QUALITY_PAGES"):
        return pages
    warehouse = default_warehouse()
    return f"{warehouse.rstrip('/')}/_calve/quality" if warehouse else str(state_folder() / "quality")


def quality_days() -> int:
    """Return the days for which pages and the history of quality checks are kept: `CALVE_QUALITY_DAYS`.

    Raises:
        InvalidConfigurationError: It is not a whole number.
    """
    return whole_number("CALVE_QUALITY_DAYS", 90)


def spark_history() -> str | None:
    """Return the address of Spark's history server, to which pages and tasks link: `CALVE_SPARK_HISTORY`."""
    return (os.environ.get("CALVE_SPARK_HISTORY") or "").rstrip("/") or None


def tables_path() -> Path:
    """Return the path of the YAML list of tables: `CALVE_TABLES`.

    The default is `tables.yaml` in the repository, or in the state folder if Calve was installed as a package.
    """
    return Path(os.environ.get("CALVE_TABLES") or (REPOSITORY if _is_repository() else state_folder()) / "tables.yaml")


def _is_repository() -> bool:
    return (REPOSITORY / "pyproject.toml").is_file()


def spark_pool() -> str:
    """Return the Airflow pool of all tasks that start a Spark driver: `CALVE_SPARK_POOL`.

    The default is Airflow's own pool, which always exists; tasks of a missing pool would wait forever.
    """
    return os.environ.get("CALVE_SPARK_POOL") or "default_pool"


def new_partition_limit() -> int:
    """Return the maximum number of new partitions per load of a RANGE_INTERVAL table: `CALVE_MAX_NEW_PARTITIONS`.

    Raises:
        InvalidConfigurationError: It is not a whole number.
    """
    return whole_number("CALVE_MAX_NEW_PARTITIONS", 1000)


class SessionScope(StrEnum):
    """Which jobs share one start of Spark."""

    STEP = "step"
    """None: each step of a load starts Spark."""
    LOAD = "load"
    """The steps of one load."""
    SHARED = "shared"
    """All jobs with the same Spark configuration, but for those that run statements."""


def session_scope() -> SessionScope:
    """Return which jobs share one start of Spark: `CALVE_SPARK_SESSION`.

    Raises:
        InvalidConfigurationError: It is another word.
    """
    text = os.environ.get("CALVE_SPARK_SESSION") or SessionScope.LOAD
    try:
        return SessionScope(text)
    except ValueError:
        raise InvalidConfigurationError(
            f"CALVE_SPARK_SESSION is {text!r}, expected {', '.join(SessionScope)}"
        ) from None


def session_idle_seconds() -> int:
    """Return how long Spark waits for the next job before it ends: `CALVE_SPARK_IDLE_SECONDS`.

    Raises:
        InvalidConfigurationError: It is not a whole number.
    """
    return whole_number("CALVE_SPARK_IDLE_SECONDS", 600 if session_scope() is SessionScope.SHARED else 60)


def job_patience() -> int:
    """Return the seconds for which jobs, tasks and starting servers wait for a catalog that cannot be reached.

    The variable is `CALVE_JOB_PATIENCE_SECONDS`.

    Raises:
        InvalidConfigurationError: It is not a whole number.
    """
    return whole_number("CALVE_JOB_PATIENCE_SECONDS", 600)


def executor_connections() -> int:
    """Return the maximum number of database connections of one job's executors: `CALVE_EXECUTOR_CONNECTIONS`.

    Raises:
        InvalidConfigurationError: It is not a whole number, or 0.
    """
    connections = whole_number("CALVE_EXECUTOR_CONNECTIONS", 32)
    if not connections:
        raise InvalidConfigurationError("CALVE_EXECUTOR_CONNECTIONS is 0, expected 1 or more")
    return connections


def is_local_master(master: str) -> bool:
    """Return whether a Spark master runs executors in the driver's process, as `local[*]` does."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def whole_number(variable: str, default: int) -> int:
    """Return the whole number of a variable, or the default.

    Raises:
        InvalidConfigurationError: It is not a whole number of fewer than 10 digits.
    """
    text = os.environ.get(variable) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidConfigurationError(f"{variable} is {text!r}, expected a whole number such as {default}")
    return int(text)


ICEBERG_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Maven coordinates for reading Iceberg tables and Avro files with Spark 4.1; tested together."""

DRIVERS = {"postgresql": "org.postgresql:postgresql:42.7.14", "sqlite": "org.xerial:sqlite-jdbc:3.53.4.0"}
"""Maven coordinates of the JDBC drivers of the catalog's databases."""


def spark_packages(*, avro: bool = False, database: str | None = None) -> tuple[str, ...]:
    """Return the Maven coordinates of the packages with which Spark reads Iceberg tables: `CALVE_SPARK_PACKAGES`.

    The variable has a comma-separated list, or `none` for a Spark that has all of them among its jars. By default,
    Spark downloads the versions that are tested together from Maven Central when it first needs them.

    Args:
        avro: Hive's Avro tables are also read.
        database: `postgresql` or `sqlite`, if Spark reads table pointers from the catalog's database.
    """
    packages = os.environ.get("CALVE_SPARK_PACKAGES")
    if packages:
        return () if packages.lower() == "none" else tuple(name.strip() for name in packages.split(",") if name.strip())
    return (ICEBERG_PACKAGE, *((AVRO_PACKAGE,) if avro else ()), *((DRIVERS[database],) if database else ()))


def package_settings(*, avro: bool = False, database: str | None = None) -> dict[str, str]:
    """Return the Spark setting for `spark_packages`; an empty dictionary when no package is needed."""
    packages = spark_packages(avro=avro, database=database)
    return {"spark.jars.packages": ",".join(packages)} if packages else {}


def verification_schedule() -> str | None:
    """Return the schedule for verifying indexes: `CALVE_VERIFY_SCHEDULE`, a cron expression, preset or `none`."""
    return _schedule("CALVE_VERIFY_SCHEDULE")


def maintenance_schedule() -> str | None:
    """Return the schedule for removing obsolete files and records: `CALVE_MAINTENANCE_SCHEDULE`, in the same form."""
    return _schedule("CALVE_MAINTENANCE_SCHEDULE")


def advisor_schedule() -> str | None:
    """Return the schedule for the advice on partitions: `CALVE_ADVISOR_SCHEDULE`, in the same form."""
    return _schedule("CALVE_ADVISOR_SCHEDULE")


def compaction_schedule() -> str | None:
    """Return the schedule for compacting small files: `CALVE_COMPACTION_SCHEDULE`, in the same form."""
    return _schedule("CALVE_COMPACTION_SCHEDULE")


def _schedule(variable: str) -> str | None:
    schedule = os.environ.get(variable) or "@daily"
    return None if schedule.lower() == "none" else schedule
