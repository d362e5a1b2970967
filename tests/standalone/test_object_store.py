"""The S3 server of benchmarks and tests: who may use its ports, and what is said when it does not start."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from standalone.errors import StackError
from standalone.object_store import START_SECONDS, RunningObjectStore
from standalone.postgres import HOST
from standalone.services import ObjectStore, Service
from tests.support.certificates import Authority
from tests.support.listening import listening


def test_no_port_answers_without_keys(tmp_path: Path) -> None:
    own_certificate = Authority.found(tmp_path).files("anybody")
    (tmp_path / "store").mkdir()
    with RunningObjectStore(tmp_path / "store") as store:
        client = store.client
        client.create_bucket(Bucket="lake")
        client.put_object(Bucket="lake", Key="secret.csv", Body=b"row of a table")
        ports = all_ports(store)
        unsigned = {method: http_status(method, f"{store.url}/lake/secret.csv") for method in ("GET", "PUT", "DELETE")}
        assert unsigned == dict.fromkeys(unsigned, 403)
        for port in ports - {store._server.ports["s3"]}:
            assert tls_refusal(port) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            assert tls_refusal(port, own_certificate) in ("SSLV3_ALERT_BAD_CERTIFICATE", "TLSV1_ALERT_UNKNOWN_CA")
        assert client.get_object(Bucket="lake", Key="secret.csv")["Body"].read() == b"row of a table"


def all_ports(store: RunningObjectStore) -> set[int]:
    """Return the ports on which a server listens, once all that have a name are open: some are later than S3."""
    assert store._process is not None
    deadline, named = time.monotonic() + START_SECONDS, set(store._server.ports.values())
    while not named <= (ports := {port for _, port in listening([store._process.pid])}):
        assert time.monotonic() < deadline, f"only {ports} of {named} are open"
        time.sleep(0.1)
    return ports


def http_status(method: str, url: str) -> int:
    """Return the status of the response to a request without keys."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, method=method), timeout=10) as response:
            return int(response.status)
    except HTTPError as refusal:
        return refusal.code


def tls_refusal(port: int, certificate: tuple[Path, Path] | None = None) -> str | None:
    """Return why a port refuses TLS with a client's certificate; None if it takes it."""
    context = ssl._create_unverified_context()
    if certificate is not None:
        context.load_cert_chain(*certificate)
    # Else a port of gRPC refuses earlier.
    context.set_alpn_protocols(["h2", "http/1.1"])
    with socket.create_connection((HOST, port), timeout=10) as connection:
        try:
            with context.wrap_socket(connection) as encrypted:
                encrypted.sendall(b"GET / HTTP/1.1\r\nHost: anybody\r\n\r\n")
                encrypted.recv(1)
        except ssl.SSLError as refusal:
            return refusal.reason
    return None


def test_a_server_that_ends_at_once_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("/bin/sh", "-c", "echo no space left; exit 3")
    monkeypatch.setattr(ObjectStore, "service", lambda _: Service("s3", command))
    store, began = RunningObjectStore(tmp_path), time.monotonic()
    with pytest.raises(StackError, match="no space left"):
        store.start()
    assert time.monotonic() - began < START_SECONDS / 2


def test_only_its_owner_can_read_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStore, "service", lambda _: Service("s3", ("/bin/false",)))
    with pytest.raises(StackError):
        RunningObjectStore(tmp_path).start()
    assert (tmp_path / "users.json").stat().st_mode & 0o777 == 0o600
