"""Every call of the protocol is answered, with its own exceptions, and only to clients that may make it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport import TTransport

from catalog import Catalog
from catalog.doors.hms.calls import calls
from catalog.doors.serving.access import Access, Client, Key, Role
from catalog.doors.serving.limits import Limits
from catalog.model.partition_names import NULL_VALUE
from tests.support.hms_door import HmsDoor, columns, partition, storage, table

ONE_WAY = {"shutdown", "reinitialize"}


def empty(spec: tuple[Any, ...]) -> Any:
    """Return a value for a field: an empty structure, list or map, a short text, or zero."""
    match spec[1]:
        case TType.STRUCT:
            made = spec[3][0]()
            for field in spec[3][0].thrift_spec or ():
                if field is not None and field[1] != TType.STRUCT:
                    setattr(made, field[2], empty(field))
            return made
        case TType.LIST | TType.SET:
            return []
        case TType.MAP:
            return {}
        case TType.STRING:
            return b"x" if spec[3] == "BINARY" else "demo"
        case TType.BOOL:
            return False
    return 0


@pytest.mark.parametrize("is_empty", [True, False])
def test_every_call_is_answered(client: Any, is_empty: bool) -> None:
    # A client of release 4, which no missing argument disconnects.
    client.get_database_req(ttypes.GetDatabaseRequest("demo"))
    failed = []
    for name, call in calls().items():
        if name in ONE_WAY:
            continue
        given = (
            {} if is_empty else {field[2]: empty(field) for field in call.arguments.thrift_spec if field is not None}
        )
        client._oprot.writeMessageBegin(name, TMessageType.CALL, 7)
        call.arguments(**given).write(client._oprot)
        client._oprot.writeMessageEnd()
        client._oprot.trans.flush()
        answered, kind, sequence = client._iprot.readMessageBegin()
        assert (answered, sequence) == (name, 7)
        if kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(client._iprot)
            said = str(error.message)
        else:
            assert call.result is not None
            result = call.result()
            result.read(client._iprot)
            said = str([getattr(result, field) for field in call.exceptions.values()])
        client._iprot.readMessageEnd()
        if "internal error" in said:
            failed.append(name)
    assert failed == []
    assert client.getName() == "Hive Metastore"


def test_what_calve_does_not_have_is_empty_or_refused(client: Any) -> None:
    assert client.get_primary_keys(ttypes.PrimaryKeysRequest("demo", "t")).primaryKeys == []
    assert client.get_open_txns().open_txns == []
    assert client.get_all_resource_plans(ttypes.WMGetAllResourcePlanRequest()).resourcePlans == []
    assert client.get_role_names() == []
    with pytest.raises(TApplicationException, match="open_txns is not supported"):
        client.open_txns(ttypes.OpenTxnRequest(1, "me", "here"))
    with pytest.raises(ttypes.NoSuchTxnException, match="there are no transactions"):
        client.commit_txn(ttypes.CommitTxnRequest(1))
    with pytest.raises(ttypes.MetaException, match="add_primary_key is not supported"):
        client.add_primary_key(ttypes.AddPrimaryKeyRequest([]))
    with pytest.raises(ttypes.NoSuchObjectException, match="get_ischema"):
        client.get_ischema(ttypes.ISchemaName("hive", "demo", "s"))


def test_the_server_tells_of_itself(client: Any) -> None:
    assert (client.getStatus(), client.getVersion(), client.set_ugi("ann", ["staff"])) == (2, "3.1.3", ["ann"])
    assert client.aliveSince() > 0
    name = "hive.exec.default.partition.name"
    assert client.get_config_value(name, "?") == "__HIVE_DEFAULT_PARTITION__"
    assert client.get_config_value("hive.metastore.filter.hook", "mine") == "mine"
    with pytest.raises(ttypes.ConfigValSecurityException):
        client.get_config_value("javax.jdo.option.ConnectionPassword", "")
    client.shutdown()
    assert client.getName() == "Hive Metastore"


def test_databases_are_named_with_or_without_their_catalog(client: Any) -> None:
    assert client.get_database("@hive#demo") == client.get_database("DEMO")
    assert client.get_all_databases() == client.get_databases("@hive#") == ["default", "demo"]
    assert client.get_databases("@hive#d*o|x") == ["demo"]
    assert client.get_databases("@other#") == []
    assert client.get_catalogs().names == ["hive"]
    with pytest.raises(ttypes.NoSuchObjectException, match="there is no catalog 'other'; the only one is hive"):
        client.get_database("@other#demo")


def test_a_commit_with_an_expected_parameter_is_made_once(client: Any) -> None:
    client.create_table(table("demo", "ice", parameters={"metadata": "one"}))
    for expected, after, is_refused in (("one", "two", False), ("one", "three", True)):
        changed = client.get_table("demo", "ice")
        changed.parameters["metadata"] = after
        properties = {"expected_parameter_key": "metadata", "expected_parameter_value": expected}
        context = ttypes.EnvironmentContext(properties=properties)
        if is_refused:
            # What Iceberg's HiveCatalog looks for.
            with pytest.raises(ttypes.MetaException, match="The table has been modified"):
                client.alter_table_with_environment_context("demo", "ice", changed, context)
        else:
            client.alter_table_with_environment_context("demo", "ice", changed, context)
    assert client.get_table("demo", "ice").parameters["metadata"] == "two"


@pytest.mark.parametrize(("role", "may_add", "may_create"), [("READER", 0, 0), ("WRITER", 1, 0), ("OWNER", 1, 1)])
def test_clients_may_do_what_their_role_allows(
    catalog: Catalog, tmp_path: Path, role: str, may_add: int, may_create: int
) -> None:
    access = Access(anonymous=Client("ann", Role[role]))
    with HmsDoor(catalog, tmp_path, tmp_path, access=access) as door, door.client() as client:
        assert "demo" in client.get_all_databases()
        refused = []
        for call in (
            lambda: client.create_table(table("demo", "t", {"p": "string"})),
            lambda: client.add_partitions([partition("demo", "t", ["x"])]),
        ):
            try:
                call()
            except TException as error:
                refused.append(f"ann has the role {role.lower()} and may not" in error.message)
        # Without the table, a writer's partition is refused for another reason.
        assert refused == [True] * (not may_create) + [not may_add] * (not may_create)


@pytest.mark.parametrize("role", ["WRITER", "OWNER"])
def test_only_owners_change_the_definition_of_a_table(catalog: Catalog, tmp_path: Path, role: str) -> None:
    access = Access(anonymous=Client("ann", Role[role]))
    with HmsDoor(catalog, tmp_path, tmp_path, access=access) as door, door.client() as client:
        catalog.create_table("demo.t", columns=[("id", "bigint")], partition_keys=[("p", "string")])
        catalog.create_view("demo.v", "SELECT 1 AS id", columns=[("id", "bigint")])

        def alter(name: str, **fields: Any) -> bool:
            entry = client.get_table("demo", name)
            vars(entry).update({field: value for field, value in fields.items() if field != "sd"})
            vars(entry.sd).update(fields.get("sd", {}))
            try:
                client.alter_table("demo", name, entry)
            except ttypes.MetaException as error:
                return "may not change the definition" not in error.message
            return True

        is_owner = role == "OWNER"
        # As engines do after they have written rows.
        assert alter("t", parameters={"numRows": "3", "spark.sql.statistics.numRows": "3"})
        assert alter("t", parameters={"EXTERNAL": "TRUE"}, tableType="EXTERNAL_TABLE") is is_owner
        assert alter("t", sd={"location": str(tmp_path / "away")}) is is_owner
        assert alter("t", sd={"cols": columns(id="string")}) is is_owner
        assert alter("t", parameters={"spark.sql.sources.provider": "csv"}) is is_owner
        assert alter("t", sd={"numBuckets": 0})
        assert alter("t", sd={"bucketCols": ["id"], "numBuckets": 4}) is is_owner
        assert alter("t", owner="somebody") is is_owner
        assert alter("v", viewExpandedText="SELECT 2 AS id") is is_owner
        assert alter("t", tableName="renamed") is is_owner


def test_a_lock_needs_a_known_type(client: Any) -> None:
    component = ttypes.LockComponent(type=None, level=None, dbname="demo")
    with pytest.raises(TApplicationException, match="known type of a lock's component is missing"):
        client.lock(ttypes.LockRequest(component=[component], user="me", hostname="here"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n < 99999999999", ["-2147483648", "1", "2147483647"]),
        ("n <> -2147483649", ["-2147483648", "1", "2147483647"]),
        ("n = 2147483648", []),
        ("n < -2147483649 or n = 1", ["1"]),
        ("n between -99999999999 and 1", ["-2147483648", "1"]),
    ],
)
def test_filters_compare_integers_with_larger_ones(client: Any, text: str, found: list[str]) -> None:
    client.create_table(table("demo", "t", {"n": "int"}))
    values = ["-2147483648", "1", "2147483647", "__HIVE_DEFAULT_PARTITION__"]
    client.add_partitions([partition("demo", "t", [value]) for value in values])
    assert [one.values[0] for one in client.get_partitions_by_filter("demo", "t", text, -1)] == found


def test_a_database_without_a_folder_is_not_created(client: Any, door: HmsDoor) -> None:
    door.warehouse.mkdir(exist_ok=True)
    (door.warehouse / "blocked.db").write_text("")
    for _ in range(2):
        with pytest.raises(ttypes.InvalidObjectException, match="is a file"):
            client.create_database(ttypes.Database(name="blocked"))
    assert "blocked" not in client.get_all_databases()
    with pytest.raises(ttypes.InvalidObjectException):
        client.create_database(ttypes.Database(name="x" * 300))


def test_a_limit_returns_the_first_partitions_by_name(client: Any) -> None:
    client.create_table(table("demo", "t", {"p": "string"}))
    client.add_partitions([partition("demo", "t", [value]) for value in "dbca"])
    assert client.get_partition_names("demo", "t", 2) == ["p=a", "p=b"]
    assert client.get_partition_names_ps("demo", "t", [""], 1) == ["p=a"]
    for found in (
        client.get_partitions("demo", "t", 2),
        client.get_partitions_ps("demo", "t", [""], 2),
        client.get_partitions_by_filter("demo", "t", "p < 'z'", 2),
        client.get_part_specs_by_filter("demo", "t", "", 2)[0].partitionList.partitions,
    ):
        assert [one.values for one in found] == [["a"], ["b"]]
    assert client.get_partitions("demo", "t", 0) == []
    assert client.get_part_specs_by_filter("demo", "t", "", 0)[0].partitionList.partitions == []


def test_a_stop_waits_for_requests_and_closes_idle_connections(catalog: Catalog, tmp_path: Path) -> None:
    with HmsDoor(catalog, tmp_path, tmp_path, limits=Limits(stop_seconds=20)) as door, door.client() as client:
        assert client.getName()
        slow = threading.Event()
        listed = catalog.list_databases

        def list_slowly() -> Any:
            slow.set()
            time.sleep(1)
            return listed()

        catalog.list_databases = list_slowly  # type: ignore[method-assign]
        found: list[Any] = []
        with door.client() as busy:
            thread = threading.Thread(target=lambda: found.append(busy.get_all_databases()))
            thread.start()
            assert slow.wait(10)
            started = time.monotonic()
            door.serving.stop.set()
            thread.join()
        assert found == [["default", "demo"]]
        with pytest.raises(Exception, match=r"TSocket read 0 bytes|reset|Broken pipe|unexpected exception"):
            client.getName()
    assert time.monotonic() - started < 10


def test_clients_that_do_not_prove_who_they_are_lose_their_connections(catalog: Catalog, tmp_path: Path) -> None:
    limits = Limits(connections=16, proof_seconds=0.5, body_seconds=60)
    with HmsDoor(catalog, tmp_path, tmp_path, limits=limits) as door, contextlib.ExitStack() as stack:
        with door.client() as client:
            assert client.getName()
            halves = [
                stack.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=10)) for _ in range(12)
            ]
            began = time.monotonic()
            for half in halves:
                with contextlib.suppress(ConnectionError):
                    assert half.recv(1) == b""
            assert time.monotonic() - began < 5
            # A client that has proved who it is may be idle for longer.
            assert client.getName()
        with door.client() as client:
            assert client.getName()


def test_partition_specs_share_their_storage(client: Any) -> None:
    grouped = {"hive.hcatalog.partition.spec.grouping.enabled": "TRUE"}
    client.create_table(table("demo", "t", {"p": "string"}, parameters=grouped))
    other = storage(cols=columns(id="int"))
    client.add_partitions(
        [partition("demo", "t", ["a"]), partition("demo", "t", ["b"]), partition("demo", "t", ["c"], sd=other)]
    )
    specs = client.get_partitions_pspec("demo", "t", -1)
    shared = [[part.relativePath for part in spec.sharedSDPartitionSpec.partitions] for spec in specs]
    assert sorted(shared) == [["/p=a", "/p=b"], ["/p=c"]]
    plain = client.get_partitions("demo", "t", -1)
    for part in plain:
        client.drop_partition("demo", "t", part.values, False)
    assert client.add_partitions_pspec(specs) == 3
    again = client.get_partitions("demo", "t", -1)
    assert [(part.values, part.sd) for part in again] == [(part.values, part.sd) for part in plain]


def test_partition_values_are_distinct_and_sorted(client: Any) -> None:
    client.create_table(table("demo", "t", {"p": "string", "q": "int"}))
    client.add_partitions([partition("demo", "t", list(values)) for values in (("b", "1"), ("a", "2"), ("b", "3"))])
    [first, second] = client.get_table("demo", "t").partitionKeys
    request = ttypes.PartitionValuesRequest("demo", "t", [first], partitionOrder=[first], ascending=False)
    assert [row.row for row in client.get_partition_values(request).partitionValues] == [["b"], ["a"]]
    request = ttypes.PartitionValuesRequest("demo", "t", [second, first], filter='p = "b"', maxParts=1)
    assert [row.row for row in client.get_partition_values(request).partitionValues] == [["1", "b"]]
    assert client.get_num_partitions_by_filter("demo", "t", "q > 1") == 2
    assert client.get_partition_names_ps("demo", "t", ["", "2"], -1) == ["p=a/q=2"]
    assert client.get_partitions_ps("demo", "t", ["b"], 1)[0].values == ["b", "1"]


def test_partitions_are_dropped_by_names_and_by_filters(client: Any) -> None:
    client.create_table(table("demo", "t", {"p": "string"}))
    client.add_partitions([partition("demo", "t", [value]) for value in "abcd"])
    spec = ttypes.RequestPartsSpec(names=["p=a", "p=zz"])
    request = ttypes.DropPartitionsRequest("demo", "t", spec, deleteData=True, ifExists=False)
    with pytest.raises(ttypes.NoSuchObjectException, match="Some partitions to drop are missing"):
        client.drop_partitions_req(request)
    request.ifExists = True
    assert [part.values for part in client.drop_partitions_req(request).partitions] == [["a"]]
    request.parts = ttypes.RequestPartsSpec(exprs=[ttypes.DropPartitionsExpr(b"p >= 'c'")])
    assert len(client.drop_partitions_req(request).partitions) == 2
    request.parts = ttypes.RequestPartsSpec(exprs=[ttypes.DropPartitionsExpr(b"\x01\x00org.apache")])
    with pytest.raises(ttypes.MetaException, match="nothing is dropped; drop the partitions by names"):
        client.drop_partitions_req(request)
    assert client.get_partition_names("demo", "t", -1) == ["p=b"]


def test_locks_wait_for_one_another(client: Any, door: HmsDoor) -> None:
    def request(kind: int) -> Any:
        component = ttypes.LockComponent(kind, ttypes.LockLevel.TABLE, "demo", "t")
        return ttypes.LockRequest([component], user="ann", hostname="here")

    first = client.lock(request(ttypes.LockType.EXCLUSIVE))
    with door.client() as other:
        second = other.lock(request(ttypes.LockType.SHARED_READ))
        assert (first.state, second.state) == (ttypes.LockState.ACQUIRED, ttypes.LockState.WAITING)
        client.heartbeat(ttypes.HeartbeatRequest(lockid=first.lockid))
        assert len(client.show_locks(ttypes.ShowLocksRequest("demo", "t")).locks) == 2
        client.unlock(ttypes.UnlockRequest(first.lockid))
        assert other.check_lock(ttypes.CheckLockRequest(second.lockid)).state == ttypes.LockState.ACQUIRED
    with pytest.raises(ttypes.NoSuchLockException):
        client.unlock(ttypes.UnlockRequest(first.lockid))


def test_filters_compare_keys_of_bounded_text_and_times(client: Any) -> None:
    client.create_table(table("demo", "t", {"v": "varchar(5)", "c": "char(3)", "at": "timestamp"}))
    values = [["a1", "x", "2024-05-01 10:00:00"], ["b2", "yz", "2024-05-02 00:00:00"], [NULL_VALUE] * 3]
    client.add_partitions([partition("demo", "t", row) for row in values])

    def found(text: str) -> list[str]:
        return [found.values[0] for found in client.get_partitions_by_filter("demo", "t", text, -1)]

    assert (
        found('v = "a1"')
        == found('v < "b" and v > "a"')
        == found('v like "a.*"')
        == found('v <> "b2" and c = "x"')
        == ["a1"]
    )
    assert found('c >= "y" or v = "none"') == found('(c) in ("yz", "w")') == ["b2"]
    assert found(f'v = "{NULL_VALUE}"') == [NULL_VALUE]
    assert found('at = "2024-05-01 10:00:00"') == found("at < TIMESTAMP '2024-05-02 00:00:00'") == ["a1"]
    assert found('at >= "2024-05-02 00:00:00"') == found("at >= DATE '2024-05-02'") == ["b2"]
    assert found('at between "2024-05-01 10:00:00" and "2024-05-01 10:00:01"') == ["a1"]
    for wrong in ('at = "soon"', "v = 3", 'at like "2024.*"', "at = TIMESTAMP '2024-13-01 00:00:00'"):
        with pytest.raises(ttypes.MetaException):
            found(wrong)


def test_the_uuid_of_the_metastore_stays(client: Any, door: HmsDoor) -> None:
    found = client.get_metastore_db_uuid()
    assert str(UUID(found)) == found
    with door.client() as other:
        assert other.get_metastore_db_uuid() == found


def test_partitions_with_specs_share_the_storage_in_the_table_s_folder(client: Any) -> None:
    client.create_table(table("demo", "t", {"p": "string"}))
    entry = client.get_table("demo", "t")
    elsewhere = partition("demo", "t", ["c"])
    elsewhere.sd.location = f"{entry.sd.location.rpartition('/')[0]}/elsewhere"
    client.add_partitions([partition("demo", "t", ["a"]), partition("demo", "t", ["b"]), elsewhere])
    request = ttypes.GetPartitionsRequest(dbName="demo", tblName="t", filterSpec=ttypes.GetPartitionsFilterSpec())
    shared, listed = client.get_partitions_with_specs(request).partitionSpec
    assert shared.sharedSDPartitionSpec.sd.location == shared.rootPath == entry.sd.location
    assert [found.relativePath for found in shared.sharedSDPartitionSpec.partitions] == ["/p=a", "/p=b"]
    assert [found.values for found in listed.partitionList.partitions] == [["c"]]


def test_folders_of_skewed_values_are_kept(client: Any) -> None:
    entry = table("demo", "orders", {"day": "string"})
    entry.sd.skewedInfo = ttypes.SkewedInfo(["id"], [["1"], ["2"]], {("1",): "file:/tmp/one"})
    client.create_table(entry)
    skew = client.get_table("demo", "orders").sd.skewedInfo
    assert (skew.skewedColValues, skew.skewedColValueLocationMaps) == ([["1"], ["2"]], {("1",): "file:/tmp/one"})
    added = partition("demo", "orders", ["2024-05-01"])
    added.sd.skewedInfo = ttypes.SkewedInfo(["id"], [["2"]], {("2",): "file:/tmp/two"})
    client.add_partitions([added])
    [found] = client.get_partitions("demo", "orders", -1)
    assert found.sd.skewedInfo == added.sd.skewedInfo


def test_tables_are_found_by_filters_and_kinds(client: Any) -> None:
    client.create_table(table("demo", "mine", owner="ann", parameters={"k": "v"}))
    client.create_table(
        table("demo", "yours", owner="bob", tableType="EXTERNAL_TABLE", parameters={"EXTERNAL": "TRUE"})
    )
    owner, parameter = "hive_filter_field_owner__", "hive_filter_field_params__"
    assert client.get_table_names_by_filter("demo", f'{owner} = "ann"', -1) == ["mine"]
    assert client.get_table_names_by_filter("demo", f'{owner} like ".*" and {parameter}k <> "w"', -1) == ["mine"]
    name, kind = "hive_filter_field_tableName__", "hive_filter_field_tableType__"
    assert client.get_table_names_by_filter("demo", f'{name} like "(?i)YO.*S"', -1) == ["yours"]
    assert client.get_table_names_by_filter("demo", f'{name} like "YO.*S" or {name} = "mine"', -1) == ["mine"]
    assert client.get_table_names_by_filter("demo", f'{name} like ".*" and {kind} <> "MANAGED_TABLE"', 1) == ["yours"]
    assert client.get_tables_by_type("demo", "*", "EXTERNAL_TABLE") == ["yours"]
    assert [meta.tableName for meta in client.get_table_meta("d*", "m*|x", [])] == ["mine"]
    with pytest.raises(ttypes.MetaException, match="Invalid key name in filter: 'name'"):
        client.get_table_names_by_filter("demo", 'name = "x"', -1)
    assert [field.name for field in client.get_schema("demo", "mine")] == ["id"]
    with pytest.raises(ttypes.UnknownTableException):
        client.get_fields("demo", "none")


class _Framed(TTransport.TTransportBase):  # type: ignore[misc]
    """The frames after a negotiation of SASL, as Hive's clients send them."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.sent = b""
        self.received = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def flush(self) -> None:
        self.connection.sendall(struct.pack(">i", len(self.sent)) + self.sent)
        self.sent = b""

    def read(self, size: int) -> bytes:
        while len(self.received) < size:
            (length,) = struct.unpack(">i", self.connection.recv(4, socket.MSG_WAITALL))
            self.received += self.connection.recv(length, socket.MSG_WAITALL)
        data, self.received = self.received[:size], self.received[size:]
        return data


@pytest.mark.parametrize("secret", ["right", "wrong"])
def test_sasl_tells_who_the_client_is(catalog: Catalog, tmp_path: Path, secret: str) -> None:
    access = Access(keys={"SPARK": Key("SPARK", "right", Client("spark", Role.READER))})
    with (
        HmsDoor(catalog, tmp_path, tmp_path, access=access) as door,
        socket.create_connection(("127.0.0.1", door.port), timeout=10) as connection,
    ):
        proof = f"\0SPARK\0{secret}".encode()
        for status, data in ((1, b"PLAIN"), (5, proof)):
            connection.sendall(struct.pack(">bi", status, len(data)) + data)
        status, length = struct.unpack(">bi", connection.recv(5, socket.MSG_WAITALL))
        if secret == "wrong":
            assert status == 3
            assert b"no client has this access key" in connection.recv(length, socket.MSG_WAITALL)
            return
        assert status == 5
        client = ThriftHiveMetastore.Client(TBinaryProtocol(_Framed(connection)))
        assert client.get_all_databases() == ["default", "demo"]
        with pytest.raises(ttypes.MetaException, match="spark has the role reader and may not call drop_database"):
            client.drop_database("demo", False, False)


def test_a_client_without_credentials_is_refused_where_there_are_keys(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = Access(keys={"SPARK": Key("SPARK", "right", Client("spark", Role.READER))})
    with HmsDoor(catalog, tmp_path, tmp_path, access=access) as door:
        for _ in range(3):
            with (
                door.client() as client,
                pytest.raises(Exception, match=r"TSocket read 0 bytes|reset|Broken pipe|unexpected exception"),
            ):
                client.get_all_databases()
    [message] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert message.startswith("refused a connection from 127.0.0.1: the client has neither a certificate nor SASL")
    assert "without CALVE_DOOR_KEYS" in message


def test_searches_of_names_are_counted_as_those_of_partitions(client: Any, door: HmsDoor, catalog: Catalog) -> None:
    client.create_table(table("demo", "days", {"country": "string", "day": "string"}))
    rows = [partition("demo", "days", [country, f"d{day}"]) for country in ("DE", "US") for day in range(3)]
    client.add_partitions(rows)
    catalog.create_partition_index("demo.days", "by_country", ["country"])
    catalog.build_partition_index("demo.days", "by_country")
    # Trino asks for names only.
    assert len(client.get_partition_names_ps("demo", "days", ["US", ""], -1)) == 3
    assert len(client.get_partition_names_ps("demo", "days", ["", "d0"], -1)) == 2
    assert len(client.get_partition_names("demo", "days", -1)) == 6
    text = door.serving.metrics.text()
    assert 'calve_door_searches_total{table="demo.days",way="index"} 1\n' in text
    assert 'calve_door_searches_total{table="demo.days",way="all"} 1\n' in text
