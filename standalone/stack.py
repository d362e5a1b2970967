"""The embedded stack: PostgreSQL, Airflow's four components and the catalog, started and stopped together.

`airflow standalone` is not used: it does not restart components, reports ready before its API responds, and leaves
processes running when it is stopped.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Self
from uuid import uuid4

from standalone.airflow_api import AirflowApi
from standalone.class_archive import archive_path
from standalone.environment import ADMIN, StackSettings
from standalone.errors import AirflowApiError, StackError, StandaloneError
from standalone.java import require_java
from standalone.postgres import PostgresServer, free_port
from standalone.preparation import (
    AIRFLOW_DATABASE,
    is_airflow_migrated,
    note_airflow_migration,
    prepare_airflow,
    write_files,
)
from standalone.processes import MARK_VARIABLE, Component, ProcessIdentity
from standalone.services import AIRFLOW_COMPONENTS
from standalone.state import HEALTHY, StackState, read_passwords, state_path

log = logging.getLogger(__name__)

CATALOG_DATABASE = "calve"
HEALTH_TIMEOUT_SECONDS = 240.0
SET_UP_TIMEOUT_SECONDS = 300.0
MAX_RESTART_DELAY_SECONDS = 30.0
_POLL_SECONDS = 0.2


class Stack:
    """One embedded stack, with all of its files below one folder; a context manager that starts and stops it.

    Attributes (after `start`; after `attach`, all but `settings`):
        api: Airflow's REST API, as its administrator.
        settings: Ports, URLs and folders of this start.
        environment: The environment variables of the stack's processes, for commands that use the same catalog.
        postgres: The server of Airflow's database, and of the catalog unless `catalog_url` is given.

    Args:
        home: State folder.
        catalog_url: SQLAlchemy URL of the catalog; default: a database of the embedded server.
        warehouse: Root of the tables' data; default: `warehouse` in the state folder.
        env: Environment variables that override the stack's, e.g. CALVE_TABLES or AIRFLOW__CORE__DAGS_FOLDER.
        durable: False disables fsync in the databases, for tests: faster, but data may be lost at a power failure.
    """

    start_command = "make up"
    stop_command = "make down"

    api: AirflowApi
    settings: StackSettings
    environment: dict[str, str]

    def __init__(
        self,
        home: Path | str,
        *,
        catalog_url: str | None = None,
        warehouse: str | None = None,
        env: Mapping[str, str] | None = None,
        durable: bool = True,
    ) -> None:
        self.home = Path(home).resolve()
        self.postgres = PostgresServer(self.home / "postgres", durable=durable)
        self.log_dir = self.home / "logs"
        self._catalog_url = catalog_url
        self._warehouse = warehouse
        self._overrides = dict(env or {})
        self._client_variables: dict[str, str] = {}
        self._components: dict[str, Component] = {}
        self._class_archive: Component | None = None
        self._state = StackState(uuid4().hex, ProcessIdentity.current())
        self._lock: IO[str] | None = None
        self._is_stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address of Airflow's UI."""
        return self.api.base_url

    @property
    def catalog_url(self) -> str:
        """The SQLAlchemy URL of the catalog."""
        return self.environment["CALVE_CATALOG_URL"]

    @property
    def warehouse(self) -> str:
        """The root of the tables' data."""
        return self.environment["CALVE_WAREHOUSE"]

    @property
    def username(self) -> str:
        """The user name of Airflow's administrator."""
        return ADMIN

    @property
    def landing(self) -> str:
        """The folder of raw files: a path or a URI."""
        return str(self.home / "landing")

    @property
    def password(self) -> str:
        """The administrator's password."""
        return read_passwords(self.home)[ADMIN]

    def component_pid(self, name: str) -> int | None:
        """Return the process id of a component (`api-server`, `scheduler`, …); None if it is not running."""
        identity = self._components[name].identity
        return identity.pid if identity else None

    def start(self) -> None:
        """Start all components and wait until they are healthy; end the processes of a killed stack first.

        Raises:
            StackError: The folder is in use, or a component does not start; the message has the end of its log.
            PostgresError: The database server does not start.
            SetUpError: There is no Java that Spark supports.
        """
        self._is_stopping.clear()
        self.home.mkdir(parents=True, exist_ok=True)
        self._acquire_lock()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def attach(self) -> bool:
        """Use the stack of this folder that another process runs, and leave its end to that process.

        This process gets the variables with which the stack's processes reach its storage.

        Returns:
            Whether a healthy stack is running.
        """
        state = StackState.of_running(self.home)
        if state is None or state.phase != HEALTHY or state.url is None:
            return False
        self.environment = state.environment
        self.api = AirflowApi(state.url, ADMIN, self.password)
        use_storage(self.environment)
        return True

    def stop(self) -> None:
        """End all processes that this object started, Spark jobs first, and the database last. Repeatable."""
        self._is_stopping.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        if self._lock is None:
            return
        self._write_phase("stopping")
        if self._class_archive is not None:
            # On SIGTERM, the JVM would first write its archive, which takes long.
            self._class_archive.kill()
            self._class_archive = None
        self._state.end_processes()
        for component in self._components.values():
            component.wait(timeout_seconds=1)
        self._components.clear()
        self.postgres.stop()
        state_path(self.home).unlink(missing_ok=True)
        self._lock.close()
        self._lock = None

    def clean_up(self) -> None:
        """End the processes that a killed stack of this folder left running; `start` does this too.

        Raises:
            StackError: The stack of this folder is running.
        """
        self._acquire_lock()
        try:
            self._end_leftovers()
        finally:
            self.stop()

    def _end_leftovers(self) -> None:
        leftover = StackState.read(self.home)
        if leftover is not None:
            log.warning("Ending the remaining processes of a killed stack")
            leftover.end_processes()
        self.postgres.stop_leftover()

    def _start(self) -> None:
        self._end_leftovers()
        self._state = StackState(uuid4().hex, ProcessIdentity.current())
        java_home = require_java()
        self._configure(java_home)
        self._write_phase("starting PostgreSQL")
        self.postgres.start()
        self.settings = self._decide(java_home)
        self.environment = self.settings.variables(os.environ, self._overrides)
        self.log_dir.mkdir(exist_ok=True)
        write_files(self.settings, self.environment)
        self._write_phase("preparing the databases")
        self._start_class_archive()
        self._prepare_databases()
        self._start_services()
        self._write_phase("starting Airflow")
        self._start_airflow()
        self._wait_until_healthy()
        self._watcher = threading.Thread(target=self._watch, name="calve-stack-watcher", daemon=True)
        self._watcher.start()
        self._write_phase(HEALTHY)

    def _configure(self, java_home: Path) -> None:
        """Choose ports and write files of further services; the embedded stack has none."""

    def _start_services(self) -> None:
        """Start further services than the database and Airflow."""

    def _start_class_archive(self) -> None:
        """Create the class archive in the background if it is missing, so that Spark jobs start faster.

        It begins before Airflow starts, whose processes leave a core idle at times.
        """
        if not archive_path(self.settings.java_home).exists():
            command = ["nice", "-n", "19", sys.executable, "-m", "standalone.class_archive"]
            self._class_archive = self._component("class-archive", command)
            self._class_archive.start()

    def _acquire_lock(self) -> None:
        path = self.home / "run" / "owner.lock"
        path.parent.mkdir(exist_ok=True)
        lock = path.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise StackError(
                f"A stack is already running in {self.home}. Stop it first: {self.stop_command}"
            ) from error
        self._lock = lock

    def _decide(self, java_home: Path) -> StackSettings:
        self.postgres.create_database(AIRFLOW_DATABASE)
        catalog_url = self._catalog_url
        # The URL may be that of the embedded catalog at an old port: from the shell file of an earlier start.
        if not catalog_url or self.postgres.has_issued(catalog_url):
            self.postgres.create_database(CATALOG_DATABASE)
            catalog_url = self.postgres.url(CATALOG_DATABASE)
        return StackSettings(
            stack_id=self._state.stack_id,
            home=self.home,
            catalog_url=catalog_url,
            warehouse=self._warehouse or str(self.home / "warehouse"),
            airflow_database_url=self.postgres.url(AIRFLOW_DATABASE, driver="psycopg2"),
            api_port=free_port(self.home / "run" / "api.port"),
            java_home=java_home,
            client_variables=self._client_variables,
        )

    def _prepare_databases(self) -> None:
        """Upgrade the schemas of both databases to the installed versions, concurrently."""
        tasks = [self._component("calve-init", [sys.executable, "-m", "catalog.cli", "init"])]
        if not is_airflow_migrated(self.postgres):
            tasks.append(self._component("airflow-db-migrate", [sys.executable, "-m", "airflow", "db", "migrate"]))
        for task in tasks:
            self._launch(task)
        for task in tasks:
            if task.wait(SET_UP_TIMEOUT_SECONDS) != 0:
                raise StackError(f"{task.name} failed. The end of {task.log_path}:\n{task.log_tail}")
            del self._components[task.name]
        note_airflow_migration(self.postgres)

    def _start_airflow(self) -> None:
        for name, words in AIRFLOW_COMPONENTS.items():
            self._launch(self._component(name, [sys.executable, "-m", "airflow", *words]))
        self.api = AirflowApi(self.settings.base_url, ADMIN, self.password)

    def _component(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Component:
        """Return a component with the environment of the stack, or with its own."""
        variables = self.environment if environment is None else {**environment, MARK_VARIABLE: self._state.stack_id}
        return Component(name, command, variables, self.log_dir / f"{name}.log")

    def _launch(self, component: Component) -> None:
        self._components[component.name] = component
        component.start()
        identities = {name: identity for name, part in self._components.items() if (identity := part.identity)}
        self._state = replace(
            self._state, url=self.settings.base_url, components=identities, environment=self.environment
        ).write(self.home)

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + HEALTH_TIMEOUT_SECONDS
        is_prepared = False
        health: dict[str, str] = {}
        while set(health.values()) != {"healthy"}:
            if time.monotonic() > deadline:
                raise StackError(
                    f"Airflow is not healthy after {HEALTH_TIMEOUT_SECONDS:.0f} s: {health or 'no response'}"
                )
            for component in self._components.values():
                if not component.is_running:
                    raise StackError(
                        f"{component.name} ended while starting. The end of {component.log_path}:\n{component.log_tail}"
                    )
            time.sleep(_POLL_SECONDS)
            with suppress(AirflowApiError):
                health = self.api.health()
                if not is_prepared:
                    prepare_airflow(self.api)
                    is_prepared = True

    def _watch(self) -> None:
        while not self._is_stopping.wait(_POLL_SECONDS):
            try:
                if not self.postgres.is_running:
                    log.warning("PostgreSQL died (see %s): restarting it", self.postgres.log_path)
                    self.postgres.start()
                for component in list(self._components.values()):
                    if not component.is_running:
                        self._restart(component)
            except (OSError, StandaloneError):
                log.exception("The restart failed and will be repeated")

    def _restart(self, component: Component) -> None:
        """Restart a dead component, with exponential backoff."""
        delay = min(2.0 ** (component.start_count - 1) - 1, MAX_RESTART_DELAY_SECONDS)
        log.warning("%s died (see %s): restarting it in %.0f s", component.name, component.log_path, delay)
        if not self._is_stopping.wait(delay):
            self._launch(component)

    def _write_phase(self, phase: str) -> None:
        self._state = self._state.with_phase(phase).write(self.home)
        log.info("%s", phase)


def use_storage(variables: Mapping[str, str]) -> None:
    """Replace AWS's variables in the environment of this process, which the processes that it starts inherit."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if name.startswith("AWS_")})
