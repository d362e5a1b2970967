"""Signatures: who is let in, and with which error everyone else is refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from catalog import Catalog
from catalog.doors.glue import application
from catalog.doors.glue.failures import GlueError
from catalog.doors.glue.operations import OPERATIONS
from catalog.doors.glue.signatures import Signatures, SignedRequest
from catalog.doors.serving.access import Role
from catalog.doors.serving.limits import Limits
from catalog.doors.serving.seen import SKEW_SECONDS, TWIN_SECONDS, SeenSignatures
from tests.support.glue_door import KEYS, REGION, GlueDoor, serving_glue

Headers = dict[str, str]
BODY = b"{}"
NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[GlueDoor]:
    folder = tmp_path_factory.mktemp("glue")
    (folder / "catalog.db").write_bytes(sqlite_template.read_bytes())
    with (
        Catalog.open(f"sqlite:///{folder / 'catalog.db'}", warehouse=str(folder)) as catalog,
        serving_glue(catalog, folder, KEYS, Limits(body_bytes=1_000_000)) as door,
    ):
        yield door


@pytest.fixture(scope="module")
def stopped_door(door: GlueDoor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlueDoor]:
    """A door whose clock shows `NOW`, on the same catalog."""
    with serving_glue(door.catalog, tmp_path_factory.mktemp("glue"), KEYS, clock=NOW.timestamp) as stopped:
        yield stopped


def signed(
    url: str,
    *,
    key: str = "OWNER",
    secret: str | None = None,
    token: str | None = None,
    service: str = "glue",
    at: datetime | None = None,
    body: bytes = BODY,
    more: Headers | None = None,
) -> Headers:
    """Return the headers of a request that botocore has signed."""
    headers = {
        "Content-Type": "application/x-amz-json-1.1",
        "X-Amz-Target": "AWSGlue.GetDatabases",
        "Host": url.removeprefix("http://"),
        **(more or {}),
    }
    request = AWSRequest("POST", f"{url}/", data=body, headers=headers)
    credentials = Credentials(key, KEYS.keys["OWNER"].secret_key if secret is None else secret, token)
    with pytest.MonkeyPatch.context() as patch:
        if at is not None:
            patch.setattr("botocore.auth.get_current_datetime", lambda: at.replace(tzinfo=None))
        SigV4Auth(credentials, service, REGION).add_auth(request)
    return dict(request.headers.items())


def post(url: str, headers: Headers, body: bytes = BODY, path: str = "/") -> tuple[int, str, str]:
    """Send a request as it is; return the status, the error's name and its message."""
    answer = httpx.post(url + path, content=body, headers=headers)
    content: dict[str, Any] = answer.json()
    assert answer.headers["x-request-id"]
    return answer.status_code, content.get("__type", ""), content.get("message", "")


def test_accepts_what_botocore_signs(door: GlueDoor) -> None:
    assert post(door.url, signed(door.url)) == (200, "", "")


def without(name: str) -> Callable[[Headers], None]:
    return lambda headers: headers.pop(name) and None


def changed(name: str, before: str, after: str) -> Callable[[Headers], None]:
    def change(headers: Headers) -> None:
        assert before in headers[name]
        headers[name] = headers[name].replace(before, after)

    return change


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (without("Authorization"), "MissingAuthenticationTokenException"),
        (without("X-Amz-Date"), "IncompleteSignatureException"),
        (without("Content-Type"), "InvalidSignatureException"),
        (changed("Authorization", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), "IncompleteSignatureException"),
        (changed("Authorization", "Credential=", "Nothing="), "IncompleteSignatureException"),
        (changed("Authorization", "Signature=", "Signature=0"), "IncompleteSignatureException"),
        (changed("Authorization", "/glue/", "/s3/"), "InvalidSignatureException"),
        (changed("Authorization", "/aws4_request", "/aws5_request"), "InvalidSignatureException"),
        (changed("Authorization", "/glue/aws4_request", "/glue"), "IncompleteSignatureException"),
        (changed("Authorization", REGION, "us-east-1"), "InvalidSignatureException"),
        (changed("Authorization", "content-type;", ""), "InvalidSignatureException"),
        (changed("Authorization", "host;", ""), "InvalidSignatureException"),
        (changed("Authorization", ";x-amz-target", ""), "InvalidSignatureException"),
        (changed("Authorization", "Credential=OWNER", "Credential=READER"), "InvalidSignatureException"),
        (changed("Authorization", "Credential=OWNER", "Credential=NOBODY"), "UnrecognizedClientException"),
        (changed("X-Amz-Target", "GetDatabases", "DeleteDatabase"), "InvalidSignatureException"),
        (changed("X-Amz-Date", "Z", ""), "IncompleteSignatureException"),
        (lambda headers: headers.update({"X-Amz-Date": "20010101T000000Z"}), "InvalidSignatureException"),
        (lambda headers: headers.update({"X-Amz-Date": "20011301T000000Z"}), "IncompleteSignatureException"),
        (lambda headers: headers.update({"X-Amz-Later": "1"}), "InvalidSignatureException"),
        (lambda headers: headers.update({"X-Amz-Security-Token": "1"}), "InvalidSignatureException"),
    ],
)
def test_refuses_a_changed_request(door: GlueDoor, change: Callable[[Headers], None], code: str) -> None:
    headers = signed(door.url)
    change(headers)
    status, found, message = post(door.url, headers)
    assert (status, found) == (400, code), message
    assert message


def test_refuses_a_changed_body_and_path(door: GlueDoor) -> None:
    assert post(door.url, signed(door.url), b'{"MaxResults": 1}')[1] == "InvalidSignatureException"
    assert post(door.url, signed(door.url), path="/?a=b")[1] == "InvalidSignatureException"


def test_refuses_a_hash_that_is_not_of_the_body(door: GlueDoor) -> None:
    headers = signed(door.url, more={"X-Amz-Content-SHA256": "0" * 64})
    status, code, message = post(door.url, headers)
    assert (status, code) == (400, "InvalidSignatureException")
    assert "x-amz-content-sha256" in message


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (without("Authorization"), "MissingAuthenticationTokenException"),
        (changed("Authorization", "Credential=OWNER", "Credential=NOBODY"), "UnrecognizedClientException"),
        (lambda headers: headers.update({"X-Amz-Date": "20010101T000000Z"}), "InvalidSignatureException"),
        (changed("X-Amz-Content-SHA256", "00", "11"), "InvalidSignatureException"),
        (lambda headers: headers.update({"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}), "InvalidSignatureException"),
    ],
)
def test_a_wrong_request_is_refused_before_its_body_is_received(
    door: GlueDoor, change: Callable[[Headers], None], code: str
) -> None:
    headers = signed(door.url, more={"X-Amz-Content-SHA256": "0" * 64})
    change(headers)
    assert answered_without_body(door, headers) == code


def test_the_body_of_a_request_that_is_signed_with_its_hash_is_received(door: GlueDoor) -> None:
    headers = signed(door.url, more={"X-Amz-Content-SHA256": sha256(BODY).hexdigest()})
    with pytest.raises(TimeoutError):
        answered_without_body(door, headers)
    assert post(door.url, signed(door.url, more={"X-Amz-Content-SHA256": sha256(BODY).hexdigest()}))[0] == 200


def answered_without_body(door: GlueDoor, headers: Headers) -> str:
    """Send headers of a body that does not follow, as a client that waits for permission does; return the error."""
    host, port = door.url.removeprefix("http://").split(":")
    sent = {**headers, "Content-Length": "1000000", "Expect": "100-continue"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    with socket.create_connection((host, int(port)), timeout=2) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{lines}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"):
            head += connection.recv(10_000)
    return re.findall(rb"x-amzn-errortype: (\w+)", head)[0].decode()


def test_large_bodies_of_unknown_clients_are_bounded(door: GlueDoor) -> None:
    """The door of these tests accepts 1 MB, and holds as much for the unknown clients of an address."""
    body = json.dumps({"NextToken": "x" * 900_000}).encode()
    host, port = door.url.removeprefix("http://").split(":")
    head = "".join(f"{name}: {value}\r\n" for name, value in signed(door.url, body=body).items())
    with contextlib.ExitStack() as stack:
        waiting = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        waiting.sendall(f"POST / HTTP/1.1\r\n{head}Content-Length: 1000000\r\n\r\n".encode() + body)
        time.sleep(0.5)
        assert post(door.url, signed(door.url, body=body), body)[1] == "ThrottlingException"
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=transport) as elsewhere:
            answer = elsewhere.post(door.url, content=body, headers=signed(door.url, body=body))
        assert answer.json()["__type"] == "InvalidInputException"
        small = {"X-Amz-Content-SHA256": sha256(body).hexdigest()}
        assert post(door.url, signed(door.url, body=body, more=small), body)[1] == "InvalidInputException"
        assert post(door.url, signed(door.url))[0] == 200
    time.sleep(0.5)
    # It may be signed in the same second as an equal one before.
    another = {**signed(door.url, body=body), "amz-sdk-invocation-id": "another"}
    assert post(door.url, another, body)[1] == "InvalidInputException"


def test_refuses_a_wrong_secret_and_temporary_credentials(door: GlueDoor) -> None:
    assert post(door.url, signed(door.url, secret="guessed"))[1] == "InvalidSignatureException"
    assert post(door.url, signed(door.url, key="", secret="guessed"))[1] == "UnrecognizedClientException"
    assert post(door.url, signed(door.url, token="a-session"))[1] == "UnrecognizedClientException"


@pytest.mark.parametrize("minutes", [-6, 6])
def test_refuses_another_time(door: GlueDoor, minutes: int) -> None:
    _, code, message = post(door.url, signed(door.url, at=datetime.now(UTC) + timedelta(minutes=minutes)))
    assert code == "InvalidSignatureException"
    assert ("expired" if minutes < 0 else "not yet current") in message


def test_refuses_a_request_that_is_sent_again(stopped_door: GlueDoor) -> None:
    headers = {**signed(stopped_door.url, at=NOW), "amz-sdk-invocation-id": "1", "amz-sdk-request": "attempt=1"}
    assert post(stopped_door.url, headers)[0] == 200
    status, code, message = post(stopped_door.url, headers)
    assert (status, code) == (400, "InvalidSignatureException")
    assert "sent before" in message
    # Equal requests of one second, and repetitions by an SDK, have equal signatures.
    assert post(stopped_door.url, {**headers, "amz-sdk-invocation-id": "2"})[0] == 200
    assert post(stopped_door.url, {**headers, "amz-sdk-request": "attempt=2"})[0] == 200


def test_refuses_a_change_that_is_sent_again_with_other_headers_that_are_not_signed(stopped_door: GlueDoor) -> None:
    body = b'{"DatabaseInput": {"Name": "twice"}}'
    more = {"X-Amz-Target": "AWSGlue.CreateDatabase"}
    headers = {**signed(stopped_door.url, body=body, more=more, at=NOW), "amz-sdk-invocation-id": "1"}
    assert post(stopped_door.url, headers, body)[0] == 200
    assert post(stopped_door.url, {**headers, "amz-sdk-invocation-id": "2"}, body)[1] == "ThrottlingException"
    assert post(stopped_door.url, {**headers, "amz-sdk-request": "attempt=2"}, body)[0] == 400
    # The same client may send it again in another second.
    later = signed(stopped_door.url, body=body, more=more, at=NOW + timedelta(seconds=2))
    assert post(stopped_door.url, later, body)[1] == "AlreadyExistsException"


def test_an_sdk_makes_equal_changes_in_one_second(stopped_door: GlueDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [NOW.replace(tzinfo=None) + timedelta(seconds=0.4 * number) for number in range(5)]
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: left.pop(0))
    client = stopped_door.client()
    for _ in range(2):
        client.create_database(DatabaseInput={"Name": "again"})
        client.delete_database(Name="again")
    assert left == [], "the second creation is sent again, in another second"


def test_headers_that_are_signed_distinguish_equal_changes() -> None:
    signatures = Signatures(KEYS, SeenSignatures(), NOW.timestamp)
    headers = {**signed("http://glue", at=NOW), "amz-sdk-invocation-id": "1"}
    assert client_of(signatures, as_sent(headers)) == "owner"
    with pytest.raises(GlueError, match="An equal request was sent before"):
        client_of(signatures, as_sent({**headers, "amz-sdk-invocation-id": "2"}))
    for invocation in ("1", "2"):
        headers = signed("http://glue", at=NOW, more={"amz-sdk-invocation-id": invocation})
        assert client_of(signatures, as_sent(headers)) == "owner"


def as_sent(headers: Headers) -> SignedRequest:
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return SignedRequest("POST", b"/", b"", pairs)


def client_of(signatures: Signatures, request: SignedRequest) -> str:
    return signatures.check(request).verified(BODY).name


def test_a_repetition_is_refused_while_its_time_is_valid_and_its_signature_is_forgotten_afterwards() -> None:
    now = NOW.timestamp()
    signatures = Signatures(KEYS, SeenSignatures(), lambda: now)
    # The client's clock is ahead, so that the request is valid for twice as long.
    headers = signed("http://glue", at=NOW + timedelta(seconds=SKEW_SECONDS))
    assert client_of(signatures, as_sent(headers)) == "owner"
    for later in (TWIN_SECONDS + 1, 2 * SKEW_SECONDS - 1):
        now = NOW.timestamp() + later
        with pytest.raises(GlueError, match="sent before"):
            client_of(signatures, as_sent({**headers, "amz-sdk-invocation-id": str(later)}))
    now = NOW.timestamp() + 2 * SKEW_SECONDS + 1
    with pytest.raises(GlueError, match="expired"):
        client_of(signatures, as_sent(headers))
    assert client_of(signatures, as_sent(signed("http://glue", at=NOW + timedelta(seconds=2 * SKEW_SECONDS))))


def test_a_process_refuses_what_another_one_has_seen() -> None:
    seen = SeenSignatures()
    headers = {**signed("http://glue", at=NOW), "amz-sdk-invocation-id": "1"}

    def is_accepted(invocation: str = "1") -> bool:
        try:
            signatures = Signatures(KEYS, seen, NOW.timestamp, is_reading=lambda _target: True)
            return bool(client_of(signatures, as_sent({**headers, "amz-sdk-invocation-id": invocation})))
        except GlueError:
            return False

    process = os.fork()
    if not process:
        os._exit(int(is_accepted()))
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1
    assert (is_accepted(), is_accepted("2"), is_accepted("2")) == (False, True, False)


def test_many_signatures_and_twins_are_told_apart() -> None:
    seen = SeenSignatures()
    many = [os.urandom(32) for _ in range(20_000)]
    assert all(seen.add(signature, b"", 1_000.0) for signature in many)
    assert not any(seen.add(signature, b"", 1_300.0) for signature in many)
    twin = os.urandom(32)
    assert all(seen.add(twin, str(number).encode(), 1_000.0 + number * 0.1) for number in range(20))
    assert not seen.add(twin, b"later", 1_000.0 + TWIN_SECONDS + 0.1)


def test_equal_requests_of_boto3_are_answered(door: GlueDoor) -> None:
    glue = door.client()
    for _ in range(20):
        glue.get_databases()


@pytest.mark.parametrize(
    ("name", "operation", "allowed"),
    [
        ("READER", "get_databases", True),
        ("READER", "create_partition", False),
        ("WRITER", "create_partition", True),
        ("WRITER", "delete_table", False),
        ("OWNER", "delete_table", True),
    ],
)
def test_roles(door: GlueDoor, name: str, operation: str, allowed: bool) -> None:
    arguments: dict[str, Any] = {
        "get_databases": {},
        "create_partition": {"DatabaseName": "no", "TableName": "no", "PartitionInput": {"Values": ["1"]}},
        "delete_table": {"DatabaseName": "no", "Name": "no"},
    }[operation]
    try:
        getattr(door.client(name), operation)(**arguments)
        code = ""
    except ClientError as error:
        code = error.response["Error"]["Code"]
    assert (code == "AccessDeniedException") is not allowed
    assert code in ("", "AccessDeniedException", "EntityNotFoundException")


READING = {
    *("GetCatalogImportStatus", "GetDatabase", "GetDatabases", "GetTable", "GetTables", "SearchTables"),
    *("GetTableVersion", "GetTableVersions", "GetPartition", "GetPartitions", "BatchGetPartition"),
    *("GetPartitionIndexes", "GetUserDefinedFunction", "GetUserDefinedFunctions"),
    *("GetColumnStatisticsForTable", "GetColumnStatisticsForPartition"),
}
WRITING = {
    *("UpdateTable", "CreatePartition", "BatchCreatePartition", "UpdatePartition", "BatchUpdatePartition"),
    *("DeletePartition", "BatchDeletePartition"),
    *("UpdateColumnStatisticsForTable", "UpdateColumnStatisticsForPartition"),
    *("DeleteColumnStatisticsForTable", "DeleteColumnStatisticsForPartition"),
}
OWNING = {
    *("CreateDatabase", "UpdateDatabase", "DeleteDatabase", "CreateTable", "DeleteTable", "BatchDeleteTable"),
    *("DeleteTableVersion", "BatchDeleteTableVersion", "CreatePartitionIndex", "DeletePartitionIndex"),
    *("CreateUserDefinedFunction", "UpdateUserDefinedFunction", "DeleteUserDefinedFunction"),
}


def test_each_operation_has_its_role() -> None:
    expected = {
        **dict.fromkeys(READING, Role.READER),
        **dict.fromkeys(WRITING, Role.WRITER),
        **dict.fromkeys(OWNING, Role.OWNER),
    }
    assert {name: operation.role for name, operation in OPERATIONS.items()} == expected


def test_a_role_is_checked_before_the_request_is_read(door: GlueDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> Any:
        raise AssertionError("the request is read")

    monkeypatch.setattr(application, "read_request", read)
    with pytest.raises(ClientError, match="AccessDeniedException"):
        door.client("READER").delete_table(DatabaseName="no", Name="no")


def test_a_server_without_keys_lets_all_in(catalog: Catalog, tmp_path: Path) -> None:
    with serving_glue(catalog, tmp_path) as door:
        assert post(door.url, {"X-Amz-Target": "AWSGlue.GetDatabases"})[0] == 200
        assert door.client(aws_access_key_id="any", aws_secret_access_key="thing").get_databases()["DatabaseList"]


def test_headers_and_queries_are_made_canonical() -> None:
    """Spaces in headers, repeated headers and queries are part of the signature as AWS defines it."""
    url = "http://glue"
    headers = signed(url, more={"X-Amz-Meta": "a   b  ", "X-Empty": ""}, at=NOW)
    assert client_of(Signatures(KEYS, SeenSignatures(), NOW.timestamp), as_sent(headers)) == "owner"
    request = AWSRequest("POST", f"{url}/a b/%2F?z=1&a=%20x&a=~", data=BODY, headers={"Host": "glue"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda: NOW.replace(tzinfo=None))
        SigV4Auth(Credentials("OWNER", KEYS.keys["OWNER"].secret_key), "glue", REGION).add_auth(request)
    pairs = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    sent = SignedRequest("POST", b"/a b/%2F", b"z=1&a=%20x&a=~", pairs)
    assert client_of(Signatures(KEYS, SeenSignatures(), NOW.timestamp), sent) == "owner"


def test_malformed_requests_are_refused_in_the_protocol(door: GlueDoor) -> None:
    for target, body, code in (
        ("AWSGlue.Nothing", b"{}", "UnknownOperationException"),
        ("AWSGlue.CreateCrawler", b"{}", "UnknownOperationException"),
        ("S3.GetObject", b"{}", "UnknownOperationException"),
        ("", b"{}", "UnknownOperationException"),
        ("AWSGlue.GetDatabases", b"{", "SerializationException"),
        ("AWSGlue.GetDatabases", b"[]", "SerializationException"),
        ("AWSGlue.GetDatabases", b'{"MaxResults": "1"}', "SerializationException"),
        ("AWSGlue.GetDatabases", b'{"MaxResults": NaN}', "SerializationException"),
        ("AWSGlue.GetDatabases", b'{"NextToken": "\\ud800"}', "SerializationException"),
        ("AWSGlue.GetDatabases", b'{"MaxResults": 0}', "ValidationException"),
        ("AWSGlue.GetDatabase", b"{}", "ValidationException"),
        ("AWSGlue.GetDatabases", b'{"NextToken": "x"}', "InvalidInputException"),
    ):
        headers = signed(door.url, body=body, more={"X-Amz-Target": target})
        status, found, message = post(door.url, headers, body)
        assert (status, found) == (400, code), (target, body, message)
    for answer, status in ((httpx.get(door.url), 405), (httpx.post(f"{door.url}/other"), 404)):
        assert (answer.status_code, answer.json()["__type"]) == (status, "UnknownOperationException")
