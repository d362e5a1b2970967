"""The environment variables of the embedded stack: those of Airflow, Spark and Calve."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from catalog.settings.environment import SessionScope
from standalone.class_archive import jvm_options, spark_home
from standalone.postgres import HOST
from standalone.processes import MARK_VARIABLE
from standalone.state import passwords_path

REPOSITORY = Path(__file__).resolve().parent.parent
ADMIN = "admin"
VIEWER = "viewer"
SPARK_POOL = "spark"


@dataclass(frozen=True)
class StackSettings:
    """The settings of one start of the stack, from which its environment variables are derived.

    Attributes:
        stack_id: Mark of the processes of this start.
        home: State folder (CALVE_HOME).
        catalog_url: SQLAlchemy URL of the catalog (CALVE_CATALOG_URL).
        warehouse: Root of the tables' data (CALVE_WAREHOUSE).
        airflow_database_url: SQLAlchemy URL of Airflow's own database.
        api_port: Port of Airflow's UI and API.
        java_home: The home of a Java version that Spark supports.
        client_variables: Further variables with which Calve's commands reach the storage and a cluster of Spark.
    """

    stack_id: str
    home: Path
    catalog_url: str
    warehouse: str
    airflow_database_url: str
    api_port: int
    java_home: Path
    client_variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        """The address of Airflow's UI and API."""
        return f"http://{HOST}:{self.api_port}"

    @property
    def airflow_home(self) -> Path:
        """Airflow's own folder: its configuration, passwords and task logs."""
        return self.home / "airflow"

    def calve_variables(self) -> dict[str, str]:
        """Return the variables that the `calve` command and Calve's code read."""
        return {
            "CALVE_CATALOG_URL": self.catalog_url,
            "CALVE_WAREHOUSE": self.warehouse,
            "CALVE_HOME": str(self.home),
            **self.client_variables,
        }

    def variables(self, inherited: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
        """Return the complete environment of the stack's processes.

        Args:
            inherited: The environment of the caller; Airflow's connections and variables are kept.
            overrides: Variables that take precedence over all others.
        """
        kept = {key: value for key, value in inherited.items() if key not in _DROPPED}
        spark_connection = {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"})}
        return {
            **spark_connection,
            **kept,
            **self._airflow_variables(),
            **self._runtime_variables(inherited),
            **self.calve_variables(),
            MARK_VARIABLE: self.stack_id,
            **overrides,
        }

    def _airflow_variables(self) -> dict[str, str]:
        sections: dict[str, dict[str, object]] = {
            "CORE": {
                "DAGS_FOLDER": REPOSITORY / "dags",
                "PLUGINS_FOLDER": REPOSITORY / "plugins",
                "LOAD_EXAMPLES": False,
                "DAGS_ARE_PAUSED_AT_CREATION": False,
                "PARALLELISM": 4,
                # Thousands of listed tables are thousands of DAGs, all of which would be lost with their file.
                "DAGBAG_IMPORT_TIMEOUT": 300,
                "EXECUTION_API_SERVER_URL": f"{self.base_url}/execution/",
                "SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin,{VIEWER}:viewer",
                "SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": passwords_path(self.home),
            },
            "DATABASE": {"SQL_ALCHEMY_CONN": self.airflow_database_url},
            "API": {"HOST": HOST, "PORT": self.api_port, "BASE_URL": self.base_url, "WORKERS": 1},
            "SCHEDULER": {"SCHEDULER_IDLE_SLEEP_TIME": 0.2},
            # All events of a load's new partitions are in the request that reports the task's success.
            "WORKERS": {"EXECUTION_API_TIMEOUT": 60},
            "DAG_PROCESSOR": {
                "REFRESH_INTERVAL": 10,
                "MIN_FILE_PROCESS_INTERVAL": 30,
                "DAG_FILE_PROCESSOR_TIMEOUT": 600,
            },
        }
        named = {
            f"AIRFLOW__{section}__{name}": str(value)
            for section, options in sections.items()
            for name, value in options.items()
        }
        return {"AIRFLOW_HOME": str(self.airflow_home), **named}

    def _runtime_variables(self, inherited: Mapping[str, str]) -> dict[str, str]:
        programs = [str(Path(sys.executable).parent), str(self.java_home / "bin"), inherited.get("PATH", os.defpath)]
        return {
            "PATH": os.pathsep.join(programs),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")]),
            "JAVA_HOME": str(self.java_home),
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_SUBMIT_OPTS": jvm_options(self.java_home),
            "GX_ANALYTICS_ENABLED": "false",
            "CALVE_SPARK_POOL": SPARK_POOL,
            # On one machine, starts of Spark are most of the time of small jobs.
            "CALVE_SPARK_SESSION": inherited.get("CALVE_SPARK_SESSION", SessionScope.SHARED),
            # The folder next to the warehouse in which `make demo` puts raw files.
            "CALVE_ALLOWED_LOCATIONS": inherited.get("CALVE_ALLOWED_LOCATIONS", str(self.home / "landing")),
            # The embedded stack has a single user, who approves their own requests.
            "CALVE_SELF_APPROVAL": inherited.get("CALVE_SELF_APPROVAL", "true"),
        }


# PYTHONDONTWRITEBYTECODE doubles each start time; the configuration of another Airflow must not be used.
_DROPPED = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "AIRFLOW_CONFIG", "SPARK_CONF_DIR"})
