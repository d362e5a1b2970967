"""The calls of the protocol: their arguments, results and exceptions, and who may make them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import fb303.FacebookService
from hive_metastore import ThriftHiveMetastore
from thrift.Thrift import TException

from catalog.doors.hms import release_4
from catalog.doors.serving.access import Role
from catalog.metastores.thrift_keys import read_list_keys

_READS = ("get_", "fetch_", "list_", "show_", "partition_name", "find_", "isPartitionMarked")
_FREE = frozenset({"getName", "getVersion", "getStatus", "getStatusDetails", "aliveSince", "set_ugi", "flushCache"})
_WRITES = (
    "add_partition",
    "append_partition",
    "alter_partition",
    "drop_partition",
    "rename_partition",
    "exchange_partition",
    "truncate_table",
    "update_",
    "set_aggr_stats_for",
    "delete_",
    "lock",
    "check_lock",  # a heartbeat, too
    "heartbeat",
    "unlock",
    "alter_table",
    "markPartitionForEvent",
    "fire_listener_event",
    "add_dynamic_partitions",
)
"""Beginnings of the names of calls that change partitions, statistics and locks, or commit to a table.

Engines commit to Iceberg tables by altering them, and write statistics into their parameters.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the protocol.

    Attributes:
        arguments, result: Thrift's structures; no result for a call without an answer.
        fields: Names of the arguments, in the order in which a handler takes them.
        exceptions: Class of an exception → name of its field in the result.
        role: What a client needs to make it.
    """

    name: str
    arguments: type
    result: type | None
    fields: tuple[str, ...]
    exceptions: dict[type[TException], str]
    has_value: bool
    role: Role


@cache
def calls() -> dict[str, Call]:
    """Return all calls that Thrift's processor knows, and those since release 4, by name."""
    read_list_keys()
    processor = ThriftHiveMetastore.Processor(None)
    shipped = {name: _call(name, *_structures(name)) for name in processor._processMap}
    return shipped | {name: _call(name, *structures) for name, structures in release_4.CALLS.items()}


def _structures(name: str) -> tuple[Any, Any]:
    module: Any = ThriftHiveMetastore if hasattr(ThriftHiveMetastore, f"{name}_args") else fb303.FacebookService
    return getattr(module, f"{name}_args"), getattr(module, f"{name}_result", None)


def _call(name: str, arguments: Any, result: Any) -> Call:
    spec = [] if result is None else [field for field in result.thrift_spec if field is not None]
    return Call(
        name=name,
        arguments=arguments,
        result=result,
        fields=tuple(field[2] for field in arguments.thrift_spec if field is not None),
        exceptions={field[3][0]: field[2] for field in spec if field[0] != 0},
        has_value=any(field[0] == 0 for field in spec),
        role=_role(name),
    )


def _role(name: str) -> Role:
    if name in _FREE or name.startswith(_READS):
        return Role.READER
    return Role.WRITER if name.startswith(_WRITES) else Role.OWNER
