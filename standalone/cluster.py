"""The stack of `make cluster`: PostgreSQL and Airflow as in the embedded stack, an S3 server, and a cluster of Spark.

No process runs as root, and jobs, executors and Airflow share no folder of tables: these are on S3. Airflow's tasks
run in its scheduler (LocalExecutor): they only submit jobs and follow them, so that a Celery worker and its broker
would add processes, but no other path through Calve.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

from catalog.settings.environment import SPARK_JVM_OPTIONS, SessionScope
from standalone.class_archive import spark_home
from standalone.environment import REPOSITORY
from standalone.errors import StackError
from standalone.object_store import client_variables, takes_objects
from standalone.postgres import HOST, free_port
from standalone.processes import Component
from standalone.services import ObjectStore, Service, SparkCluster, user, users_file
from standalone.spark_jars import fetch_jars
from standalone.stack import Stack, use_storage
from standalone.state import write_private
from standalone.unprivileged import clean_environment

BUCKET = "lake"
WORKERS = ("spark-worker-1", "spark-worker-2")
START_SECONDS = 180.0
_POLL_SECONDS = 0.2


class ClusterStack(Stack):
    """A stack whose Spark jobs run on a standalone cluster, with all tables and raw files on S3.

    Args:
        home: State folder.
        durable: As in `Stack`.
    """

    start_command = "make cluster"
    stop_command = "make cluster-down"

    def __init__(self, home: Path | str, *, durable: bool = True) -> None:
        super().__init__(home, warehouse=f"s3://{BUCKET}/warehouse", durable=durable)

    @property
    def landing(self) -> str:
        """The folder of raw files, on S3."""
        return f"s3://{BUCKET}/landing"

    def _configure(self, java_home: Path) -> None:
        self._spark_folder = self.home / "spark"
        for folder in (self._spark_folder / "conf", self._spark_folder / "work", self.home / "s3"):
            folder.mkdir(parents=True, exist_ok=True)
        self._configure_store()
        self._configure_spark()
        self._service_environment = {
            **clean_environment(),
            "HOME": str(self.home),
            **self._spark.host_environment(self._spark_folder, java_home),
        }
        use_storage(self._client_variables)

    def _configure_store(self) -> None:
        key, secret = self._keys()
        self._store = ObjectStore(
            str(Path(sys.executable).with_name("weed")),
            self.home / "s3",
            self.home / "s3-users.json",
            HOST,
            HOST,
            {name: free_port(self.home / "run" / f"s3-{name}.port") for name in ObjectStore.PORTS},
        )
        write_private(self._store.users, users_file(user("calve", key, secret)))
        self._client_variables |= {
            **client_variables(self._store.url, key, secret),
            "CALVE_ALLOWED_LOCATIONS": self.landing,
            "CALVE_QUALITY_PAGES": f"s3://{BUCKET}/quality",
            "CALVE_TABLES": str(self._write_tables()),
        }

    def _configure_spark(self) -> None:
        self._spark = SparkCluster(
            spark_home(),
            HOST,
            free_port(self.home / "run" / "spark-master.port"),
            free_port(self.home / "run" / "spark-master-web.port"),
            worker_cores=str(max(1, (os.cpu_count() or 1) // len(WORKERS))),
        )
        self._write_phase("fetching Spark's packages")
        self._write_spark_defaults(fetch_jars(self.home / "jars"))
        self._client_variables |= {
            "CALVE_SPARK_MASTER": self._spark.url,
            "CALVE_SPARK_PACKAGES": "none",
            "PYSPARK_PYTHON": os.path.realpath(sys.executable),
            "SPARK_CONF_DIR": str(self._spark_folder / "conf"),
        }
        host, _, port = self._spark.url.rpartition(":")
        connection = {"conn_type": "spark", "host": host, "port": int(port)}
        self._overrides["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(connection)
        # An idle application would keep its cores, for which other jobs wait.
        self._overrides.setdefault("CALVE_SPARK_SESSION", SessionScope.LOAD)

    def _start_services(self) -> None:
        self._write_phase("starting the S3 server and Spark")
        run, work = self.home / "run", self._spark_folder / "work"
        workers = [self._spark.worker(name, HOST, free_port(run / f"{name}.port"), work / name) for name in WORKERS]
        services = [self._store.service(), self._spark.master(), *workers]
        components = [
            self._component(service.name, service.command, {**self._service_environment, **service.environment})
            for service in services
        ]
        for component in components:
            self._launch(component)
        for service, component in zip(services, components, strict=True):
            self._wait_for_service(service, component)
        self._make_bucket()
        self._wait("Spark's workers register", lambda: self._spark.worker_count() == len(WORKERS))

    def _start_class_archive(self) -> None:
        """Start none: the virtual environment, where it is, may belong to another user."""

    def _wait_for_service(self, service: Service, component: Component) -> None:
        self._wait(f"{service.name} is ready", lambda: service.is_healthy() or not component.is_running)
        if not component.is_running:
            raise StackError(
                f"{service.name} ended while starting. The end of {component.log_path}:\n{component.log_tail}"
            )

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise StackError(f"Waited {START_SECONDS:.0f} s in vain until {what}; see the logs in {self.log_dir}")
            time.sleep(_POLL_SECONDS)

    def _make_bucket(self) -> None:
        import boto3

        client = boto3.client("s3")
        self._wait(f"bucket {BUCKET} takes objects", lambda: takes_objects(client, BUCKET))

    def _keys(self) -> tuple[str, str]:
        """Return the access key and the secret key of the S3 server, generated at the first start."""
        path = self.home / "s3-keys.json"
        if not path.exists():
            write_private(path, json.dumps([secrets.token_hex(10), secrets.token_urlsafe(30)]))
        key, secret = json.loads(path.read_text())
        return key, secret

    def _write_spark_defaults(self, jars: list[Path]) -> None:
        """Write the settings of the cluster's processes and of drivers; only their user can read the secret."""
        settings = {
            **self._spark.defaults(secrets.token_urlsafe(30)),
            "spark.driver.host": HOST,
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": SPARK_JVM_OPTIONS,
            # On this machine, executors read the same files.
            "spark.jars": ",".join(f"local:{jar}" for jar in jars),
        }
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        write_private(self._spark_folder / "conf" / "spark-defaults.conf", "".join(lines))

    def _write_tables(self) -> Path:
        """Write the list of tables with their raw files on S3; return its path."""
        path = self.home / "tables.yaml"
        text = (REPOSITORY / "tables.yaml").read_text(encoding="utf-8")
        note = f"# {self.start_command} writes this file from {REPOSITORY / 'tables.yaml'}: add entries there.\n"
        path.write_text(note + text.replace("${CALVE_HOME}/landing", self.landing), encoding="utf-8")
        return path
