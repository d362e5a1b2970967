"""Thrift's structures of calls that are newer than those which PyIceberg ships.

Clients of Hive 4 make them instead of older ones. Source: `hive_metastore.thrift` of Hive 4.0.1 to 4.2.0.
"""

from __future__ import annotations

from typing import Any

from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBase import TBase
from thrift.Thrift import TException, TType

_Kind = tuple[int, Any]

_TEXT: _Kind = (TType.STRING, "UTF8")
_BOOL: _Kind = (TType.BOOL, None)
_SHORT: _Kind = (TType.I16, None)
_NUMBER: _Kind = (TType.I32, None)


def _struct(structure: Any) -> _Kind:
    return TType.STRUCT, [structure, structure.thrift_spec]


def _list(kind: _Kind) -> _Kind:
    return TType.LIST, (*kind, False)


class _Structure(TBase):  # type: ignore[misc]  # Thrift has no types
    thrift_spec: tuple[Any, ...] = ()

    def __init__(self, **given: Any) -> None:
        for field in self.thrift_spec:
            if field is not None:
                setattr(self, field[2], given.pop(field[2], None))
        if given:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(given)}")


def _structure(name: str, /, *, success: _Kind | None = None, **fields: _Kind) -> Any:
    """Return a class with fields that are numbered from 1, after the value of a result at 0."""
    numbered = [(number, kind, field, more, None) for number, (field, (kind, more)) in enumerate(fields.items(), 1)]
    first = None if success is None else (0, success[0], "success", success[1], None)
    return type(name, (_Structure,), {"thrift_spec": (first, *numbered)})


_TEXTS, _CONTEXT = _list(_TEXT), _struct(ttypes.EnvironmentContext)

AlterDatabaseRequest = _structure("AlterDatabaseRequest", oldDbName=_TEXT, newDb=_struct(ttypes.Database))
AppendPartitionsRequest = _structure(
    "AppendPartitionsRequest",
    catalogName=_TEXT,
    dbName=_TEXT,
    tableName=_TEXT,
    name=_TEXT,
    partVals=_TEXTS,
    environmentContext=_CONTEXT,
)
DeleteColumnStatisticsRequest = _structure(
    "DeleteColumnStatisticsRequest",
    cat_name=_TEXT,
    db_name=_TEXT,
    tbl_name=_TEXT,
    part_names=_TEXTS,
    col_names=_TEXTS,
    engine=_TEXT,
    tableLevel=_BOOL,
)
DropPartitionRequest = _structure(
    "DropPartitionRequest",
    catName=_TEXT,
    dbName=_TEXT,
    tblName=_TEXT,
    partName=_TEXT,
    partVals=_TEXTS,
    deleteData=_BOOL,
    environmentContext=_CONTEXT,
)
DropTableRequest = _structure(
    "DropTableRequest",
    catalogName=_TEXT,
    dbName=_TEXT,
    tableName=_TEXT,
    deleteData=_BOOL,
    envContext=_CONTEXT,
    dropPartitions=_BOOL,
)
GetDatabaseObjectsRequest = _structure("GetDatabaseObjectsRequest", catalogName=_TEXT, pattern=_TEXT)
GetDatabaseObjectsResponse = _structure("GetDatabaseObjectsResponse", databases=_list(_struct(ttypes.Database)))
GetFunctionsRequest = _structure(
    "GetFunctionsRequest", dbName=_TEXT, catalogName=_TEXT, pattern=_TEXT, returnNames=_BOOL
)
GetFunctionsResponse = _structure(
    "GetFunctionsResponse", function_names=_TEXTS, functions=_list(_struct(ttypes.Function))
)
GetPartitionsByFilterRequest = _structure(
    "GetPartitionsByFilterRequest", catName=_TEXT, dbName=_TEXT, tblName=_TEXT, filter=_TEXT, maxParts=_SHORT
)
TableMeta = _structure(
    "TableMeta",
    dbName=_TEXT,
    tableName=_TEXT,
    tableType=_TEXT,
    comments=_TEXT,
    catName=_TEXT,
    ownerName=_TEXT,
    ownerType=_NUMBER,
)

_EXISTS, _UNKNOWN, _INVALID, _META = (
    ttypes.AlreadyExistsException,
    ttypes.NoSuchObjectException,
    ttypes.InvalidObjectException,
    ttypes.MetaException,
)


def _call(name: str, request: Any, success: _Kind | None, *exceptions: type[TException]) -> tuple[Any, Any]:
    """Return the structures of the arguments and of the result of a call."""
    declared = {f"o{number}": _struct(exception) for number, exception in enumerate(exceptions, 1)}
    arguments = _structure(f"{name}_args", request=_struct(request))
    return arguments, _structure(f"{name}_result", success=success, **declared)


_CALLS = (
    ("alter_database_req", AlterDatabaseRequest, None, _META, _UNKNOWN),
    ("append_partition_req", AppendPartitionsRequest, _struct(ttypes.Partition), _INVALID, _EXISTS, _META),
    ("create_database_req", ttypes.CreateDatabaseRequest, None, _EXISTS, _INVALID, _META),
    (
        "delete_column_statistics_req",
        DeleteColumnStatisticsRequest,
        _BOOL,
        *(_UNKNOWN, _META, _INVALID, ttypes.InvalidInputException),
    ),
    ("drop_partition_req", DropPartitionRequest, _BOOL, _UNKNOWN, _META),
    ("drop_table_req", DropTableRequest, None, _UNKNOWN, _META),
    ("fetch_partition_names_req", ttypes.PartitionsRequest, _TEXTS, _UNKNOWN, _META),
    ("get_databases_req", GetDatabaseObjectsRequest, _struct(GetDatabaseObjectsResponse), _META),
    ("get_functions_req", GetFunctionsRequest, _struct(GetFunctionsResponse), _META),
    ("get_partitions_by_filter_req", GetPartitionsByFilterRequest, _list(_struct(ttypes.Partition)), _META, _UNKNOWN),
)

CALLS: dict[str, tuple[Any, Any]] = {
    **{name: _call(name, *parts) for name, *parts in _CALLS},
    "get_table_meta": (
        ThriftHiveMetastore.get_table_meta_args,
        _structure("get_table_meta_result", success=_list(_struct(TableMeta)), o1=_struct(_META)),
    ),
}
"""Name of a call that is new, or returns more → the classes of its arguments and its result."""
