"""`calve serve` as a process: what listens where, worker processes that die, stops, reloads and refusals."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import make_url
from thrift.transport.TTransport import TTransportException

from catalog import Catalog
from catalog.operations.failpoints import DIE_AT, Point
from catalog.storage import Storage
from catalog.storage.upgrade import upgrade
from standalone.calve_server import CalveServer
from tests.support.certificates import Authority
from tests.support.commands import calve
from tests.support.hms_door import connected, table

HOST = "127.0.0.1"
# A command that is not refused serves until it is stopped.
pytestmark = pytest.mark.timeout(120)

KEYS = "clients: {{{name}: {{role: reader, access_key: {key}, secret_key: 0123456789abcdef}}}}"
MUST_SOON_SECONDS = 60.0


@pytest.fixture
def server(sqlite_url: str, tmp_path: Path) -> Iterator[CalveServer]:
    environment = {"CALVE_CATALOG_URL": sqlite_url, "CALVE_WAREHOUSE": str(tmp_path / "warehouse")}
    options = ("--workers", "2", "--log-level", "info")
    with CalveServer(tmp_path, doors=("rest", "metrics"), options=options, environment=environment) as server:
        yield server


def get(server: CalveServer, path: str, door: str = "metrics") -> str:
    with urllib.request.urlopen(f"http://{server.address(door)}{path}", timeout=30) as response:
        return str(response.read().decode())


def workers(server: CalveServer) -> set[int]:
    return {process.pid for process in psutil.Process(server.pid).children()}


def soon(condition: Callable[[], object]) -> None:
    until = time.monotonic() + MUST_SOON_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_server_answers_creates_the_default_database_and_survives_dead_workers(
    server: CalveServer, sqlite_url: str
) -> None:
    assert '"status": "ok"' in get(server, "/health")
    assert '"status": "ok"' in get(server, "/health", "rest")
    with Catalog.open(sqlite_url) as catalog:
        assert [database.name for database in catalog.list_databases()] == ["default"]
    before = workers(server)
    assert len(before) == 2
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    soon(lambda: len(workers(server) - before) == 2)
    assert 'operation="health",status="ok"} 1' in get(server, "/metrics"), "the numbers of dead workers are lost"
    assert "a worker has died" in server.log


@pytest.mark.long
def test_a_rename_that_dies_with_its_process_is_undone_by_the_next(sqlite_url: str, tmp_path: Path) -> None:
    environment = {"CALVE_CATALOG_URL": sqlite_url, "CALVE_WAREHOUSE": str(tmp_path / "warehouse")}
    environment[DIE_AT] = Point.MOVED
    server = CalveServer(tmp_path, doors=("hms",), options=("--workers", "1"), environment=environment)
    file = tmp_path / "warehouse/default/events/day=1/rows"
    with server:
        port = int(server.address("hms").rpartition(":")[2])
        with connected(port) as client:
            client.create_table(table("default", "events", {"day": "string"}))
            client.append_partition("default", "events", ["1"])
            file.write_text("kept")
            renamed = client.get_table("default", "events")
            renamed.tableName = "visits"
            with pytest.raises(TTransportException):
                client.alter_table("default", "events", renamed)
        soon(file.exists)
        assert file.read_text() == "kept"
        with connected(port) as client:
            assert client.get_all_tables("default") == ["events"]
            client.drop_table("default", "events", True)
    assert not file.exists()


@pytest.mark.long
def test_sigterm_lets_requests_finish_even_if_it_comes_twice(server: CalveServer) -> None:
    host, port = server.address("metrics").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as half:
        half.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: last-one\r\n")
        time.sleep(0.3)
        os.kill(server.pid, signal.SIGTERM)
        os.kill(server.pid, signal.SIGTERM)
        soon(lambda: server.exit_code is not None)
    assert server.exit_code == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=1)


@pytest.mark.long
def test_workers_end_with_a_supervisor_that_is_killed(server: CalveServer) -> None:
    left = workers(server)
    os.kill(server.pid, signal.SIGKILL)
    soon(lambda: not any(psutil.pid_exists(worker) for worker in left))


@pytest.mark.long
def test_a_server_stops_when_another_version_upgrades_the_catalog(server: CalveServer, sqlite_url: str) -> None:
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE calve_alembic_version SET version_num = '9999'")
    soon(lambda: server.exit_code is not None)
    assert server.exit_code
    assert "another version of Calve has upgraded the catalog" in server.log
    assert "Traceback" not in server.log


@pytest.mark.long
def test_a_low_limit_of_open_files_is_raised_for_the_connections(sqlite_url: str, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    environment = {"CALVE_CATALOG_URL": sqlite_url, "CALVE_DOOR_CONNECTIONS": "300"}
    server = CalveServer(tmp_path, doors=("hms", "metrics"), options=("--workers", "1"), environment=environment)
    with contextlib.ExitStack() as connections:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            connections.enter_context(server)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(300):
            client = connections.enter_context(connected(int(server.address("hms").rsplit(":", 1)[1])))
            assert client.getName()
        soon(lambda: 'connections{door="hms"} 300' in get(server, "/metrics"))
        assert "Traceback" not in server.log


@pytest.mark.long
def test_sighup_reads_the_keys_again_unless_they_are_wrong(sqlite_url: str, tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.touch(0o600)
    keys.write_text(KEYS.format(name="a", key="A"))
    environment = {"CALVE_CATALOG_URL": sqlite_url, "CALVE_DOOR_KEYS": str(keys)}

    def status(key: str) -> int:
        manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
        manager.add_password(None, url := f"http://{server.address('metrics')}/metrics", key, "0123456789abcdef", True)
        try:
            with urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager)).open(url, timeout=10) as got:
                return int(got.status)
        except urllib.error.HTTPError as error:
            return error.code

    with CalveServer(tmp_path, doors=("rest", "metrics"), environment=environment) as server:
        assert (status("A"), status("B")) == (200, 401)
        keys.write_text("wrong")
        os.kill(server.pid, signal.SIGHUP)
        soon(lambda: "keys and certificates stay as they were" in server.log)
        assert status("A") == 200
        keys.write_text(KEYS.format(name="b", key="B"))
        os.kill(server.pid, signal.SIGHUP)
        soon(lambda: (status("A"), status("B")) == (401, 200))
        assert "0123456789abcdef" not in server.log


@pytest.mark.long
def test_sighup_replaces_one_process_after_the_other_while_all_requests_are_answered(
    sqlite_url: str, tmp_path: Path
) -> None:
    environment = {"CALVE_CATALOG_URL": sqlite_url}
    doors = ("hms", "rest", "metrics")
    with CalveServer(tmp_path, doors=doors, options=("--workers", "3"), environment=environment) as server:
        before, most = workers(server), 0
        answered = {"http": 0, "thrift": 0}
        os.kill(server.pid, signal.SIGHUP)
        until = time.monotonic() + 60
        while before & (running := workers(server)):
            assert len(running) >= 3
            most = max(most, len(running))
            assert '"status": "ok"' in get(server, "/health", "rest")
            answered["http"] += 1
            with connected(int(server.address("hms").rsplit(":", 1)[1])) as client:
                assert client.get_all_databases() == ["default"]
            answered["thrift"] += 1
            assert time.monotonic() < until
        assert most == 4
        soon(lambda: len(workers(server)) == 3)
        assert min(answered.values()) > 20
        assert f'operation="get_all_databases",status="ok"}} {answered["thrift"]}' in get(server, "/metrics")


@pytest.mark.long
def test_endless_headers_hold_no_connection(server: CalveServer) -> None:
    host, port = server.address("rest").rsplit(":", 1)

    def send_without_end(connection: socket.socket) -> None:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(1_000):
            connection.sendall(b"X-Header: " + b"x" * 10_000 + b"\r\n")

    with socket.create_connection((host, int(port)), timeout=10) as endless, pytest.raises(ConnectionError):
        send_without_end(endless)
    assert get(server, "/health", "rest")


def test_connections_are_encrypted(sqlite_url: str, tmp_path: Path) -> None:
    authority = Authority.found(tmp_path)
    chain, key = authority.files(HOST)
    options = ("--tls-cert", str(chain), "--tls-key", str(key))
    environment = {"CALVE_CATALOG_URL": sqlite_url}
    with CalveServer(tmp_path, doors=("rest", "metrics"), options=options, environment=environment) as server:
        assert f"https://{server.address('metrics')}" in server.log
        context = ssl.create_default_context(cafile=authority.pem)
        with urllib.request.urlopen(f"https://{server.address('metrics')}/health", context=context) as response:
            assert "max-age" in response.headers["Strict-Transport-Security"]
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server, "/health")


# --- a database that starts later -----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def forwarding(port: int, postgres_url: str) -> Iterator[None]:
    """Forward connections to a port to the server of a database."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                url = make_url(postgres_url)
                server = socket.create_connection((url.host or HOST, url.port or 5432))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=copy, args=ends, daemon=True).start()

    with socket.create_server((HOST, port)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def starting(url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the block; its log goes to a file."""
    command = [sys.executable, "-m", "catalog.cli", "serve", "--hms", "0", "--no-glue", "--no-rest", "--workers", "1"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env={**os.environ, "CALVE_CATALOG_URL": url}, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_server_waits_for_its_database(postgres_url: str, tmp_path: Path, is_stopped: bool) -> None:
    port, log = free_port(), tmp_path / "log"
    with contextlib.closing(Storage(postgres_url)) as storage:
        upgrade(storage)
    url = str(make_url(postgres_url).set(host=HOST, port=port, query={}).render_as_string(hide_password=False))
    with starting(url, log) as process:
        soon(lambda: "the server waits for the catalog" in log.read_text())
        if is_stopped:
            [worker] = psutil.Process(process.pid).children()
            process.terminate()
        else:
            with forwarding(port, postgres_url):
                soon(lambda: "Ready: " in log.read_text())
                process.terminate()
                process.wait(MUST_SOON_SECONDS)
        assert process.wait(MUST_SOON_SECONDS) == 0
        assert not is_stopped or not worker.is_running()
    assert "Traceback" not in log.read_text()


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_missing_catalog_is_reported_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "catalog.cli", "serve", "--hms", "0", "--glue", "0", "--rest", "0"]
    environment = {**os.environ, "CALVE_CATALOG_URL": f"sqlite:///{tmp_path}/none.db"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "CatalogUnavailableError: there is no catalog at" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hms", "0.0.0.0:0"], "0.0.0.0:0 can be reached from other machines, and no credentials are set"),
        (["--hms", "[::]:0"], "no credentials are set"),
        (["--hms", "70000"], "'70000' is no address to listen on"),
        (["--hms", "a b:1"], "'a b:1' is no address to listen on"),
        (["--hms", "no.such.host.invalid:1"], "cannot listen on no.such.host.invalid:1"),
        (["--no-hms", "--no-glue", "--no-rest"], "leave nothing to serve"),
        (["--tls-cert", "a.pem"], "--tls-cert and --tls-key are both needed"),
        (["--tls-cert", "a.pem", "--tls-key", "a.key"], "--tls-cert a.pem and --tls-key a.key cannot be used"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str, sqlite_url: str) -> None:
    done = calve("serve", "--hms", "0", "--glue", "0", "--rest", "0", *arguments, CALVE_CATALOG_URL=sqlite_url)
    assert done.exit_code == 1
    assert message in done.stderr


def test_missing_packages_are_named(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.cli.serving.find_spec", lambda name: None)
    done = calve("serve", CALVE_CATALOG_URL=sqlite_url)
    assert done.exit_code == 1
    assert "fastapi and uvicorn not installed" in done.stderr
    assert "pip install 'calve[serve]'" in done.stderr


def test_a_port_in_use_is_reported(sqlite_url: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        done = calve("serve", "--hms", "0", "--glue", "0", "--rest", port, CALVE_CATALOG_URL=sqlite_url)
    assert f"cannot listen on {HOST}:{port}: Address already in use" in done.stderr


@pytest.mark.parametrize(
    ("options", "is_refused"), [((), True), (("--plain",), True), (("--tls-cert", "c", "--tls-key", "k"), True)]
)
def test_other_machines_need_encryption_or_permission(
    options: tuple[str, ...], is_refused: bool, sqlite_url: str, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.touch(0o600)
    keys.write_text(KEYS.format(name="a", key="A"))
    # A wrong port of another door ends the command after the check.
    arguments = ["serve", "--no-hms", "--no-glue", "--rest", "0.0.0.0:0", "--metrics", "203.0.113.1:1", *options]
    done = calve(*arguments, CALVE_CATALOG_URL=sqlite_url, CALVE_DOOR_KEYS=str(keys))
    refusal = "its connections would not be encrypted"
    assert (refusal in done.stderr) == (not options)
    assert done.exit_code == int(is_refused)
