"""Spark configuration of one table, from its entry in the YAML list, or of one run, from its form."""

from __future__ import annotations

import re
from collections.abc import Mapping

from catalog.errors import WrongFieldError
from catalog.settings.fields import shown
from catalog.settings.secret_names import is_name_of_secret

_WITH_PASSWORD = "CATALOG_URL"
"""Part of the names of variables that may have a password in their values."""

_CONTROL = re.compile(r"[\x00-\x1f]")
_NAME = re.compile(r"spark\.[A-Za-z0-9_.\-]+")
_OF_RUNS = re.compile(
    r"spark\.(cores\.max|task\.cpus|default\.parallelism|yarn\.queue|yarn\.priority|network\.timeout"
    r"|(driver|executor)\.(cores|memory|memoryOverhead|memoryOverheadFactor)|executor\.(instances|heartbeatInterval)"
    r"|dynamicAllocation\.(enabled|(initial|min|max)Executors|executorAllocationRatio|shuffleTracking\.enabled"
    r"|(executorIdle|cachedExecutorIdle|schedulerBacklog|sustainedSchedulerBacklog)Timeout)"
    r"|kubernetes\.(driver|executor)\.(request|limit)\.cores|memory\.(fraction|storageFraction)"
    r"|sql\.(shuffle\.partitions|autoBroadcastJoinThreshold"
    r"|files\.(maxPartitionBytes|openCostInBytes|minPartitionNum|maxPartitionNum)"
    r"|adaptive\.(enabled|advisoryPartitionSizeInBytes|coalescePartitions\.(enabled|minPartitionSize|parallelismFirst)"
    r"|skewJoin\.(enabled|skewedPartitionFactor|skewedPartitionThresholdInBytes))))"
)
"""Settings of resources, parallelism and queues: none changes results or names code."""

_SIZES = re.compile(r"spark\.(driver|executor)\.memory(Overhead)?")
_SIZE = re.compile(r"0*[1-9][0-9]*([kmgtp]b?|b)?", re.IGNORECASE)
_COUNTS = re.compile(
    r"spark\.(cores\.max|task\.cpus|default\.parallelism|(driver|executor)\.cores|executor\.instances"
    r"|sql\.shuffle\.partitions)"
)
_COUNT = re.compile(r"0*[1-9][0-9]*")
"""Values that end spark-submit or the session if they are wrong, before the job can record an error."""

_OF_RUNS_VALUE = re.compile(r"[A-Za-z0-9_.-]*")


def table_spark_conf(field: str, value: object) -> dict[str, str]:
    """Return a mapping of Spark's settings with the values as strings; an empty dictionary for null.

    Raises:
        WrongFieldError: It is not a mapping, a name does not begin with `spark.` or is that of a secret, or a value is
            not a string, a number or a boolean, or not the size or number that Spark needs.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise WrongFieldError(field, f"{shown(value)} is not a mapping such as {{spark.executor.memory: 4g}}")
    conf = {_name(field, name): _scalar(field, name, setting) for name, setting in value.items()}
    for name, setting in conf.items():
        if _SIZES.fullmatch(name) and not _SIZE.fullmatch(setting):
            raise WrongFieldError(field, f"{name} is {shown(setting)}; give a size such as 4g or 512m")
        if _COUNTS.fullmatch(name) and not _COUNT.fullmatch(setting):
            raise WrongFieldError(field, f"{name} is {shown(setting)}; give a whole number, 1 or more")
    return conf


def run_spark_conf(field: str, value: object) -> dict[str, str]:
    """Return the settings that a form gives: only those of resources and queues, because others could run any code.

    Raises:
        WrongFieldError: As `table_spark_conf`, or a run may not set one.
    """
    conf = table_spark_conf(field, value)
    for name, setting in conf.items():
        if not _OF_RUNS.fullmatch(name):
            raise WrongFieldError(
                field,
                f"a run cannot set {name}, only resources, parallelism and queues such as spark.executor.memory, "
                "spark.cores.max and spark.yarn.queue; set it in the table's entry in tables.yaml",
            )
        if not _OF_RUNS_VALUE.fullmatch(setting):
            raise WrongFieldError(field, f"{name} is {shown(setting)}; give a number, a size, a time or a name")
    return conf


def _name(field: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongFieldError(field, f"{shown(name)} is no setting of Spark; its name has to begin with spark.")
    if is_name_of_secret(name) or _WITH_PASSWORD in name.upper():
        raise WrongFieldError(
            field, f"{name} is the name of a secret, which Airflow and Spark would show; set it in Spark's environment"
        )
    return name


def _scalar(field: str, name: object, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str) and not _CONTROL.search(text := str(value)):
        return text
    raise WrongFieldError(field, f"{name} is {shown(value)}; give a string, a number, true or false")
