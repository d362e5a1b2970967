"""Tables as Airflow assets, and their new partitions as partitioned asset events.

A DAG that runs once for each new partition of a table:

    with DAG("report", schedule=PartitionedAssetTimetable(assets=table_asset("demo.flights"))):
        ...  # the task argument `partition_key` is `origin=JFK/carrier=AA/year=2013/month=1`

A DAG that runs once for each load of up to `MAX_KEYS` partitions adds `default_partition_mapper=FixedKeyMapper("load")`
to the timetable. `schedule=[table_asset(...)]` alone starts nothing: Airflow does not pass events with a partition key
to such a DAG. One that runs once for each load, with its counts in the event's `extra`, has another asset:

    with DAG("report", schedule=[change_asset("demo.flights", Change.LOADED)]):
        ...
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

MAX_KEYS = 500
"""Maximum number of events that one task instance emits.

Airflow writes all of them in the request that reports the task's success, at 3 to 10 ms each, and the client of that
request times out after 5 seconds.
"""

_MAX_KEY_LENGTH = 250
_DIGEST_LENGTH = 32
_HOST = re.compile(r"[\w-]+")


def table_asset(table: str) -> Asset:
    """Return the asset of a table.

    The URI has an `x-` scheme because Airflow does not normalise it; for any other scheme, Airflow loads all its
    providers to look for a rule. A database whose name is not valid as a host, such as `[a`, is part of the path.

    Args:
        table: `database.name`; without a database, it is in `default`.
    """
    database, _, name = table.strip().lower().rpartition(".")
    database = database or "default"
    host = "" if _HOST.fullmatch(database) else "/"
    return Asset(name=f"{database}.{name}", uri=f"x-calve://{host}{database}/{name}")


def dropped_asset(table: str) -> Asset:
    """Return the asset of the dropped partitions of a table: a DAG for new partitions cannot read these.

    Args:
        table: As for `table_asset`.
    """
    asset = table_asset(table)
    return Asset(name=f"{asset.name} (dropped)", uri=f"{asset.uri}/dropped")


class Change(StrEnum):
    """The changes of tables that are events of assets of their own, one event for each operation."""

    LOADED = "loaded"
    REBALANCED = "rebalanced"
    MIGRATED = "migrated"
    REVERTED = "reverted"


def change_asset(table: str, change: Change) -> Asset:
    """Return the asset whose events are the loads, rebalances, migrations or reverts of a table, without key.

    Args:
        table: As for `table_asset`.
    """
    asset = table_asset(table)
    return Asset(name=f"{asset.name} ({change})", uri=f"{asset.uri}/{change}")


def announce_change(context: Context, table: str, change: Change, extra: Mapping[str, JsonValue]) -> None:
    """Make the running task emit one event of `change_asset` when it succeeds, besides its other events.

    Args:
        extra: The event's `extra`, such as the counts of the operation.
    """
    asset = change_asset(table, change)
    task = context["ti"].task
    task.outlets = [*task.outlets, asset]
    context["outlet_events"][asset].extra = dict(extra)


def partition_key(partition_name: str) -> str:
    """Return the partition key of a partition's asset event: the partition's name, in at most 250 characters.

    A longer name is truncated and ends in `~` and a digest of the full name, so that the same name always gives the
    same key.
    """
    if len(partition_name) <= _MAX_KEY_LENGTH:
        return partition_name
    digest = hashlib.sha256(partition_name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{partition_name[: _MAX_KEY_LENGTH - _DIGEST_LENGTH - 1]}~{digest}"


def announcement_batches(partition_names: Iterable[str]) -> list[list[str]]:
    """Split partition names into batches that `announce` accepts, for a mapped task; no names give no batch."""
    names = iter(partition_names)
    return list(iter(lambda: list(islice(names, MAX_KEYS)), []))


def announce(context: Context, table: str, partition_names: Iterable[str], *, is_dropped: bool = False) -> None:
    """Make the running task emit exactly one event for each partition when it succeeds.

    Replaces the outlets that the task declares: only this table's asset gets events, and without partitions no asset
    does. A retry repeats no event, because Airflow keeps only the events of successful tries. Airflow creates no event
    for an asset that no DAG refers to.

    Args:
        context: The running task's context.
        table: `database.name`.
        partition_names: At most `MAX_KEYS` names `k=v/k2=v2`; see `announcement_batches`.
        is_dropped: The partitions were dropped, so the events are of `dropped_asset`.

    Raises:
        ValueError: There are more than `MAX_KEYS` names.

    Source: `_handle_current_task_success` in Airflow's task runner, which sends the outlets as `execute` leaves them.
    """
    asset = dropped_asset(table) if is_dropped else table_asset(table)
    keys = sorted({partition_key(name) for name in partition_names})
    if len(keys) > MAX_KEYS:
        raise ValueError(
            f"one task cannot announce {len(keys):,} partitions of {table}, because it may emit at most {MAX_KEYS} "
            "events; map the task over announcement_batches(partition_names)"
        )
    context["ti"].task.outlets = [asset] if keys else []
    if keys:
        context["outlet_events"][asset].add_partitions(keys)
