"""Many ordinary requests on one door, in which memory must not grow."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import Any

from hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

from tests.fuzz.glue import MEDIA
from tests.fuzz.hooks import sign
from tests.fuzz.rest import token
from tests.fuzz.served import Served
from tests.fuzz.thrift import negotiation
from tests.support.hms_door import HOST

_CLIENTS = 6
_WARM = 0.4
_STEPS = 10
_READS = 25
"""One request of so many is a write."""

_BYTES_A_REQUEST = 200
_ACCEPTED_BYTES = 5
"""The answer to right keys."""

Send = Callable[[int], None]


def soak(served: Served, door: str, count: int) -> tuple[str, list[str]]:
    """Send requests by several clients; return what was done, and the problems."""
    problems: list[str] = []
    memory = []
    for step in range(_STEPS):
        threads = [
            threading.Thread(target=_work, args=(served, door, step * _CLIENTS + number, count // _STEPS, problems))
            for number in range(_CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        memory.append(served.usage().memory_bytes)
        print(f"  after {(step + 1) * count // _STEPS:,} requests: {memory[-1] / 2**20:.1f} MiB", flush=True)
        if problems:
            break
    warm = int(len(memory) * _WARM)
    grown, requests = memory[-1] - memory[warm], (len(memory) - 1 - warm) * (count // _STEPS)
    if requests and grown / requests > _BYTES_A_REQUEST:
        problems.append(f"memory has grown by {grown / requests:.0f} bytes a request in the last {requests:,}")
    return f"{len(memory) * count // _STEPS:,} requests", problems


def _work(served: Served, door: str, number: int, count: int, problems: list[str]) -> None:
    try:
        with_client = {"hms": _thrift, "glue": _glue, "rest": _rest}[door]
        with_client(served, number, range(count // _CLIENTS))
    except Exception as error:
        problems.append(f"client {number}: {type(error).__name__}: {error}")


def _index(step: int, *, reads: int, writes: int) -> int:
    """Return the number of the request of a step: one of the reads, or now and then the next of the writes."""
    return reads + step // _READS % writes if step % _READS == 0 else step % reads


def _thrift(served: Served, number: int, rounds: range) -> None:
    connection = TSocket(HOST, int(served.server.address("hms").rsplit(":", 1)[1]))
    connection.open()
    # After SASL's negotiation, its frames are those of Thrift's framed transport.
    connection.write(negotiation())
    connection.read(_ACCEPTED_BYTES)
    transport = TFramedTransport(connection)
    try:
        client: Any = ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport))
        calls = (
            lambda: client.get_table("demo", "orders"),
            lambda: client.get_partitions_by_filter("demo", "orders", 'country = "DE" and number > 1', -1),
            lambda: client.get_all_databases(),
            lambda: client.append_partition("demo", "orders", ["FR", "2024-05-03", str(number)]),
            lambda: client.drop_partition("demo", "orders", ["FR", "2024-05-03", str(number)], True),
        )
        for step in rounds:
            calls[_index(step, reads=3, writes=2)]()
    finally:
        transport.close()


def _glue(served: Served, number: int, rounds: range) -> None:
    host = served.server.address("glue")
    connection = http.client.HTTPConnection(host, timeout=60)
    names = {"DatabaseName": "demo", "TableName": "orders"}
    values = ["FR", "2024-05-03", str(number)]
    requests = (
        ("GetTable", {"DatabaseName": "demo", "Name": "orders"}),
        ("GetPartitions", {**names, "Expression": "country = 'DE' and number > 1"}),
        ("GetDatabases", {}),
        ("CreatePartition", {**names, "PartitionInput": {"Values": values}}),
        ("DeletePartition", {**names, "PartitionValues": values}),
    )
    for step in rounds:
        operation, members = requests[_index(step, reads=3, writes=2)]
        body = json.dumps(members).encode()
        given = {"Content-Type": MEDIA, "X-Amz-Target": f"AWSGlue.{operation}", "Host": host}
        # Signed, so that equal requests of one second differ however long they wait.
        given["amz-sdk-invocation-id"] = f"{number}-{step}"
        _send(connection, "POST", "/", body, sign("POST", f"http://{host}/", given, body))


def _rest(served: Served, number: int, rounds: range) -> None:
    connection = http.client.HTTPConnection(served.server.address("rest"), timeout=60)
    headers = {"Authorization": f"Bearer {token(served)}", "Content-Type": "application/json"}
    fields = [{"id": 1, "name": "id", "type": "long", "required": True}]
    table = {"name": f"t{number}", "schema": {"type": "struct", "fields": fields}}
    inside = "/v1/calve/namespaces/demo/tables"
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    _send(connection, "POST", inside, json.dumps(table).encode(), headers)
    requests: tuple[tuple[str, str, Any], ...] = (
        ("GET", f"{inside}/t{number}", None),
        ("GET", "/v1/calve/namespaces", None),
        ("HEAD", f"{inside}/t{number}", None),
        ("GET", inside, None),
    )
    for step in rounds:
        if _index(step, reads=len(requests), writes=1) == len(requests):
            _send(connection, "POST", f"{inside}/t{number}", json.dumps(change).encode(), headers)
        else:
            _send(connection, *requests[_index(step, reads=len(requests), writes=1)], headers)
    _send(connection, "DELETE", f"{inside}/t{number}", None, headers)


def _send(connection: Any, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> None:
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300:
        raise ValueError(f"{method} {path} {answer.status}: {content[:300]!r}")
