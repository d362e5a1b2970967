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


def ask(client: Any, name: str, request: Any = None, **arguments: Any) -> Any:
    """Make a call with a request, or with other arguments, and return its value, or raise its exception."""
    call = calls()[name]
    given = arguments or {"request": request}
    client._oprot.writeMessageBegin(name, TMessageType.CALL, 1)
    call.arguments(**given).write(client._oprot)
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
        *("fetch_partition_names_req", "get_databases_req", "get_functions_req", "get_partitions_by_filter_req"),
        "get_table_meta",
    }
    owners = {name for name, role in roles.items() if role is Role.OWNER}
    assert owners == {"alter_database_req", "create_database_req", "drop_table_req"}


def test_calls_that_keep_or_end_locks_are_for_those_who_may_take_them() -> None:
    kept = {"lock", "check_lock", "heartbeat", "heartbeat_lock_materialization_rebuild", "unlock"}
    assert {name: calls()[name].role for name in kept} == dict.fromkeys(kept, Role.WRITER)
    assert calls()["show_locks"].role is Role.READER


def test_tables_are_listed_by_a_pattern(client: Any) -> None:
    for name in ("orders", "orders_of_may", "customers"):
        client.create_table(table("demo", name))
    request = ttypes.GetTablesRequest(dbName="@hive#demo", tablesPattern="orders*")
    assert [found.tableName for found in client.get_table_objects_by_name_req(request).tables] == [
        *("orders", "orders_of_may")
    ]
    client.create_database(ttypes.Database("other"))
    client.create_table(table("other", "orders_of_june"))
    request.dbName = "@hive#*"
    found = client.get_table_objects_by_name_req(request).tables
    assert [(table.dbName, table.tableName) for table in found] == [
        *(("demo", "orders"), ("demo", "orders_of_may"), ("other", "orders_of_june"))
    ]
    request.dbName = "demo|default"
    for pattern in ("none", ""):
        request.tablesPattern = pattern
        assert client.get_table_objects_by_name_req(request).tables == []
    for nowhere in ("nowhere", "no*", "@other#demo"):
        request.dbName = nowhere
        with pytest.raises(ttypes.UnknownDBException):
            client.get_table_objects_by_name_req(request)


def test_tables_have_an_id_that_a_later_one_of_the_name_has_not(client: Any) -> None:
    client.create_table(table("demo", "orders"))
    first = client.get_table("demo", "orders")
    client.alter_table("demo", "orders", client.get_table("demo", "orders"))
    assert client.get_table("demo", "orders").id == first.id is not None
    client.drop_table("demo", "orders", True)
    client.create_table(first)
    assert client.get_table("demo", "orders").id > first.id


def test_no_table_is_the_root_of_a_file_system(client: Any) -> None:
    for root in ("hdfs://localhost:8020", "hdfs://localhost:8020/", "s3a://bucket", "/"):
        entry = table("demo", "orders")
        entry.sd.location = root
        with pytest.raises(ttypes.InvalidObjectException, match="orders location must not be root path"):
            client.create_table_req(ttypes.CreateTableRequest(table=entry))


def test_tables_have_the_fields_that_are_asked_for(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "int"}, parameters={"a": "b"}))
    request = ttypes.GetTablesRequest(dbName="demo", tblNames=["orders"])

    def asked(*fields: str, **patterns: str) -> Any:
        request.projectionSpec = ttypes.GetProjectionsSpec(fieldList=list(fields), **patterns)
        [found] = client.get_table_objects_by_name_req(request).tables
        return found

    some = asked("tableName", "sd.location", "sd.serdeInfo.serializationLib")
    whole = client.get_table("demo", "orders")
    assert (some.tableName, some.dbName, some.owner, some.parameters) == ("orders", None, None, None)
    assert (some.sd.location, some.sd.cols, some.sd.inputFormat) == (whole.sd.location, None, None)
    assert some.sd.serdeInfo.serializationLib == whole.sd.serdeInfo.serializationLib
    assert some.sd.serdeInfo.parameters is None
    assert asked("tableName", "sd.cols.name") == whole
    assert asked() == whole
    with pytest.raises(ttypes.MetaException, match="no field cost"):
        asked("cost")
    with pytest.raises(ttypes.MetaException, match="patterns"):
        asked(includeParamKeyPattern="a")


def test_a_field_that_is_asked_for_is_whole(client: Any) -> None:
    client.create_table(table("demo", "orders"))
    spec = ttypes.GetProjectionsSpec(fieldList=["sd", "sd.location"])
    request = ttypes.GetTablesRequest("demo", ["orders"], projectionSpec=spec)
    [found] = client.get_table_objects_by_name_req(request).tables
    assert found.sd == client.get_table("demo", "orders").sd
    spec.fieldList = ["tableName.first"]
    with pytest.raises(ttypes.MetaException, match=r"no field tableName\.first"):
        client.get_table_objects_by_name_req(request)


def test_like_has_the_patterns_of_sql(client: Any) -> None:
    client.create_table(table("demo", "orders", {"month": "string"}))
    client.add_partitions([partition("demo", "orders", [month]) for month in ("march", "may", "june")])
    text = "month like 'm%'"
    assert client.get_partitions_by_filter("demo", "orders", text, -1) == []
    assert len(client.get_partitions_by_filter("demo", "orders", "month like 'm.*'", -1)) == 2
    search = release_4.GetPartitionsByFilterRequest(dbName="demo", tblName="orders", filter=text, maxParts=-1)
    assert len(ask(client, "get_partitions_by_filter_req", search)) == 2
    assert client.get_num_partitions_by_filter("demo", "orders", text) == 2


def test_names_of_partitions_of_no_table_are_none(client: Any) -> None:
    request = ttypes.PartitionsRequest(dbName="demo", tblName="nothing", maxParts=-1)
    assert ask(client, "fetch_partition_names_req", request) == []
    request.catName = "nowhere"
    assert ask(client, "fetch_partition_names_req", request) == []
    request.tblName = ""
    with pytest.raises(ttypes.NoSuchObjectException):
        ask(client, "fetch_partition_names_req", request)


def test_partial_values_are_given(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "int"}))
    client.add_partition(partition("demo", "orders", ["1"]))
    names = ttypes.GetPartitionNamesPsRequest(dbName="demo", tblName="orders", partValues=[""], maxParts=-1)
    assert client.get_partition_names_ps_req(names).names == ["day=1"]
    for values in (None, []):
        names.partValues = values
        with pytest.raises(ttypes.MetaException, match="Incorrect number"):
            client.get_partition_names_ps_req(names)
    search = ttypes.GetPartitionsPsWithAuthRequest(dbName="demo", tblName="orders", maxParts=-1)
    assert len(client.get_partitions_ps_with_auth_req(search).partitions) == 1
    search.partVals = []
    with pytest.raises(ttypes.MetaException, match="Incorrect number"):
        client.get_partitions_ps_with_auth_req(search)


def test_databases_have_the_time_of_their_creation(client: Any) -> None:
    client.create_database(ttypes.Database(name="lake", createTime=17))
    assert client.get_database("lake").createTime > 1_600_000_000


def test_metadata_of_tables_tell_their_owners(client: Any) -> None:
    client.create_table(table("demo", "orders", owner="ann", ownerType=ttypes.PrincipalType.ROLE))
    [found] = ask(client, "get_table_meta", db_patterns="demo", tbl_patterns="*", tbl_types=[])
    assert (found.tableName, found.ownerName, found.ownerType) == ("orders", "ann", ttypes.PrincipalType.ROLE)
    assert [meta.tableName for meta in client.get_table_meta("demo", "*", [])] == ["orders"]


def test_a_table_without_a_database_is_refused_as_by_its_release(client: Any) -> None:
    nowhere = table(None, "orders")  # type: ignore[arg-type]
    with pytest.raises(ttypes.InvalidObjectException):
        client.create_table(nowhere)
    with pytest.raises(ttypes.MetaException):
        client.create_table_req(ttypes.CreateTableRequest(table=nowhere))


def test_functions_without_a_database_are_refused_as_by_its_release(client: Any) -> None:
    function = ttypes.Function(
        functionName="upper_of",
        className="com.example.Upper",
        functionType=ttypes.FunctionType.JAVA,
        ownerType=ttypes.PrincipalType.USER,
    )
    with pytest.raises(ttypes.NoSuchObjectException):
        client.create_function(function)
    ask(client, "create_database_req", ttypes.CreateDatabaseRequest(databaseName="lake"))
    with pytest.raises(ttypes.MetaException):
        client.create_function(function)


@pytest.mark.parametrize("needs_result", [True, False])
def test_the_table_of_a_request_is_looked_for_before_its_partitions(client: Any, needs_result: bool) -> None:
    client.create_table(table("demo", "orders", {"day": "int"}))
    added = [partition("demo", "orders", ["1"]), partition("other", "orders", ["2"])]
    request = ttypes.AddPartitionsRequest("nowhere", "orders", added, needResult=needs_result, ifNotExists=False)
    with pytest.raises(ttypes.InvalidObjectException):
        client.add_partitions_req(request)
    request.dbName = "demo"
    with pytest.raises(ttypes.MetaException):
        client.add_partitions_req(request)


def test_names_of_partitions_have_the_order_that_is_asked_for(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "int", "kind": "string"}))
    null = "__HIVE_DEFAULT_PARTITION__"
    client.add_partitions(
        [partition("demo", "orders", [day, kind]) for day in ("-3", "1", "10", "2", null) for kind in "ab"]
    )

    def names(order: str | None, limit: int = -1, expression: bytes = b"\xff") -> list[str]:
        request = ttypes.PartitionsByExprRequest("demo", "orders", expression, order=order, maxParts=limit)
        found: list[str] = client.get_partition_names_req(request)
        return [name.replace("day=", "").replace("/kind=", "").replace(null, "?") for name in found]

    assert names("0:+") == ["-3a", "-3b", "1a", "1b", "2a", "2b", "10a", "10b", "?a", "?b"]
    assert names("0,1:-+", 3) == ["?a", "?b", "10a"]
    assert names("1,0:-+", 2, b"day > 1") == ["2b", "10b"]
    assert names(None, 2) == names("no order", 2) == ["-3a", "-3b"]
    for order in ("2:+", "0,1:+", "x:+"):
        with pytest.raises(ttypes.MetaException, match="cannot be read"):
            names(order)


def test_names_of_partitions_are_not_shown_unfiltered(client: Any) -> None:
    client.create_table(table("demo", "orders", {"day": "int"}))
    client.add_partitions([partition("demo", "orders", ["1"])])
    serialised = b"\x01\x01org.apache.hadoop.hive.ql.plan.ExprNodeGenericFuncDe\xf3\xac"
    with pytest.raises(ttypes.MetaException, match="serialised expression cannot be read"):
        client.get_partition_names_req(ttypes.PartitionsByExprRequest("demo", "orders", serialised))


def test_patterns_of_dropped_partitions_are_those_of_sql(client: Any) -> None:
    client.create_table(table("demo", "orders", {"kind": "string"}))
    client.add_partitions([partition("demo", "orders", [kind]) for kind in ("a.b", "axb")])
    request = ttypes.PartitionsRequest(catName="hive", dbName="demo", tblName="orders", maxParts=-1)
    ask(client, "fetch_partition_names_req", request)
    parts = ttypes.RequestPartsSpec(exprs=[ttypes.DropPartitionsExpr(expr=b"kind like 'a.b'")])
    client.drop_partitions_req(ttypes.DropPartitionsRequest("demo", "orders", parts))
    assert client.get_partition_names("demo", "orders", -1) == ["kind=axb"]
