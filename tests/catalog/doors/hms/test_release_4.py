"""Calls that clients of Hive 4 make instead of older ones."""

from __future__ import annotations

from typing import Any

import pytest
from hive_metastore import ttypes
from thrift.Thrift import TMessageType

from catalog.doors.hms import release_4
from catalog.doors.hms.calls import calls
from catalog.doors.serving.access import Role
from tests.support.hms_door import partition, table


def ask(client: Any, name: str, request: Any) -> Any:
    """Make a call with a request, and return its value, or raise its exception."""
    call = calls()[name]
    client._oprot.writeMessageBegin(name, TMessageType.CALL, 1)
    call.arguments(request=request).write(client._oprot)
    client._oprot.writeMessageEnd()
    client._oprot.trans.flush()
    assert client._iprot.readMessageBegin() == (name, TMessageType.REPLY, 1)
    assert call.result is not None
    result = call.result()
    result.read(client._iprot)
    client._iprot.readMessageEnd()
    for field in call.exceptions.values():
        if (error := getattr(result, field)) is not None:
            raise error
    return result.success if call.has_value else None


def test_databases_are_created_changed_and_listed(client: Any) -> None:
    request = ttypes.CreateDatabaseRequest(
        databaseName="@hive#lake", description="of tests", ownerName="ann", ownerType=ttypes.PrincipalType.ROLE
    )
    ask(client, "create_database_req", request)
    with pytest.raises(ttypes.AlreadyExistsException):
        ask(client, "create_database_req", request)
    created = client.get_database("lake")
    assert (created.description, created.ownerName, created.ownerType) == ("of tests", "ann", ttypes.PrincipalType.ROLE)
    created.parameters = {"a": "b"}
    ask(client, "alter_database_req", release_4.AlterDatabaseRequest(oldDbName="@hive#lake", newDb=created))
    request = release_4.GetDatabaseObjectsRequest(catalogName="hive", pattern="la*")
    [found] = ask(client, "get_databases_req", request).databases
    assert (found.name, found.parameters, found.description) == ("lake", {"a": "b"}, "of tests")
    assert len(ask(client, "get_databases_req", release_4.GetDatabaseObjectsRequest()).databases) == 3
    request.catalogName = "other"
    assert ask(client, "get_databases_req", request).databases == []


def test_partitions_are_appended_found_and_dropped(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "int"}))
    append = {"dbName": "@hive#demo", "tableName": "orders"}
    [first, second] = [
        ask(client, "append_partition_req", release_4.AppendPartitionsRequest(**append, **named))
        for named in ({"partVals": ["1"]}, {"name": "day=2"})
    ]
    assert (first.values, second.values) == (["1"], ["2"])
    request = ttypes.PartitionsRequest(catName="hive", dbName="demo", tblName="orders", maxParts=1)
    assert ask(client, "fetch_partition_names_req", request) == ["day=1"]
    search = release_4.GetPartitionsByFilterRequest(dbName="demo", tblName="orders", filter="day > 1", maxParts=-1)
    assert ask(client, "get_partitions_by_filter_req", search) == [second]
    drop = {"dbName": "demo", "tblName": "orders", "deleteData": True}
    assert ask(client, "drop_partition_req", release_4.DropPartitionRequest(**drop, partVals=["1"]))
    assert ask(client, "drop_partition_req", release_4.DropPartitionRequest(**drop, partName="day=2"))
    with pytest.raises(ttypes.NoSuchObjectException):
        ask(client, "drop_partition_req", release_4.DropPartitionRequest(**drop, partName="day=2"))
    ask(client, "drop_table_req", release_4.DropTableRequest(dbName="demo", tableName="orders", deleteData=True))
    with pytest.raises(ttypes.NoSuchObjectException):
        ask(client, "drop_table_req", release_4.DropTableRequest(dbName="demo", tableName="orders"))


def test_functions_are_listed_by_name_or_whole(client: Any) -> None:
    client.create_function(
        ttypes.Function("twice", "demo", "demo.Twice", "ann", ttypes.PrincipalType.USER, 0, ttypes.FunctionType.JAVA)
    )
    request = release_4.GetFunctionsRequest(dbName="demo", pattern="t*", returnNames=True)
    assert ask(client, "get_functions_req", request).function_names == ["twice"]
    request.returnNames = False
    [found] = ask(client, "get_functions_req", request).functions
    assert found.className == "demo.Twice"


def test_statistics_of_several_partitions_are_deleted(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "int"}))
    client.add_partitions([partition("demo", "orders", [day]) for day in "12"])
    data = ttypes.ColumnStatisticsData(longStats=ttypes.LongColumnStatsData(numNulls=0, numDVs=1))
    names = ["day=1", "day=2"]
    for name in [None, *names]:
        about = ttypes.ColumnStatisticsDesc(name is None, "demo", "orders", name)
        of_column = ttypes.ColumnStatisticsObj("id", "bigint", data)
        statistics = ttypes.ColumnStatistics(about, [of_column])
        (client.update_table_column_statistics if name is None else client.update_partition_column_statistics)(
            statistics
        )
    search = ttypes.PartitionsStatsRequest("demo", "orders", ["id"], names)
    assert len(client.get_partitions_statistics_req(search).partStats) == 2
    request = release_4.DeleteColumnStatisticsRequest(
        db_name="demo", tbl_name="orders", part_names=names[:1], col_names=["id"], tableLevel=False
    )
    assert ask(client, "delete_column_statistics_req", request)
    assert list(client.get_partitions_statistics_req(search).partStats) == ["day=2"]
    request.part_names = request.col_names = None
    assert ask(client, "delete_column_statistics_req", request)
    assert client.get_partitions_statistics_req(search).partStats == {}
    assert len(client.get_table_statistics_req(ttypes.TableStatsRequest("demo", "orders", ["id"])).tableStats) == 1
    request.tableLevel = True
    assert ask(client, "delete_column_statistics_req", request)
    assert client.get_table_statistics_req(ttypes.TableStatsRequest("demo", "orders", ["id"])).tableStats == []


def test_roles_follow_from_the_names_of_the_calls() -> None:
    roles = {name: calls()[name].role for name in release_4.CALLS}
    readers = {name for name, role in roles.items() if role is Role.READER}
    assert readers == {
        *("fetch_partition_names_req", "get_databases_req", "get_functions_req", "get_partitions_by_filter_req")
    }
    owners = {name for name, role in roles.items() if role is Role.OWNER}
    assert owners == {"alter_database_req", "create_database_req", "drop_table_req"}
