"""Tables as Airflow assets, and their new partitions as partitioned asset events.

A DAG that runs once per new partition of a table:

    with DAG("report", schedule=PartitionedAssetTimetable(assets=table_asset("demo.flights"))):
        ...  # the task argument `partition_key` is `origin=JFK/carrier=AA/year=2013/month=1`

and one that runs once per load, of up to `MAX_KEYS` partitions: the same with
`default_partition_mapper=FixedKeyMapper("load")`. `schedule=[table_asset(...)]` alone starts nothing: Airflow keeps
events that carry a key from such a DAG.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context

MAX_KEYS = 500
"""Events that one task instance may emit.

Airflow writes them all in the one request that reports the task's success, at 3 to 10 ms each, and the client of that
request gives up after 5 seconds.
"""

_MAX_KEY_LENGTH = 250
_DIGEST_LENGTH = 32
_HOST = re.compile(r"[\w-]+")


def table_asset(table: str) -> Asset:
    """Return the asset of a table, `database.name`.

    The `x-` scheme is the one that Airflow leaves alone; any other makes it load all its providers to look for a rule.
    A database whose name could not be that of a host, such as `[a`, is part of the path.
    """
    database, _, name = table.strip().lower().rpartition(".")
    database = database or "default"
    host = "" if _HOST.fullmatch(database) else "/"
    return Asset(name=f"{database}.{name}", uri=f"x-calve://{host}{database}/{name}")


def partition_key(partition_name: str) -> str:
    """Return the key under which a partition is announced: its name, at most 250 characters long.

    A longer name is cut, and ends in `~` and a digest of the whole name: always the same for the same name.
    """
    if len(partition_name) <= _MAX_KEY_LENGTH:
        return partition_name
    digest = hashlib.sha256(partition_name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{partition_name[: _MAX_KEY_LENGTH - _DIGEST_LENGTH - 1]}~{digest}"


def announcement_batches(partition_names: Iterable[str]) -> list[list[str]]:
    """Split names into lists that `announce` takes, for a mapped task; no names give no list."""
    names = iter(partition_names)
    return list(iter(lambda: list(islice(names, MAX_KEYS)), []))


def announce(context: Context, table: str, partition_names: Iterable[str]) -> None:
    """Make the running task emit one event for each partition when it succeeds, and no other event.

    Whatever outlets the task declares, only the table named here gets events; with no partitions, none does. A retry
    announces nothing twice, because Airflow keeps events of successful tries only. An asset that no DAG names cannot
    have an event; then nobody listens either.

    Args:
        context: The running task's context.
        table: `database.name`.
        partition_names: At most `MAX_KEYS` names `k=v/k2=v2`; see `announcement_batches`.

    Raises:
        ValueError: There are more names than that.

    Source: `_handle_current_task_success` in Airflow's task runner, which sends the outlets as the task leaves them.
    """
    asset = table_asset(table)
    keys = sorted({partition_key(name) for name in partition_names})
    if len(keys) > MAX_KEYS:
        raise ValueError(
            f"{len(keys):,} partitions of {table} cannot be announced by one task, which may emit {MAX_KEYS} events; "
            "map the task over announcement_batches(partition_names)"
        )
    context["ti"].task.outlets = [asset] if keys else []
    if keys:
        context["outlet_events"][asset].add_partitions(keys)
