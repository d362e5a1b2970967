"""Command line and environment of a Spark job, from the connection and the hook of Airflow's Spark provider."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from catalog.settings.environment import REPOSITORY, is_local_master
from catalog.settings.secret_names import is_name_of_secret

_CONNECTION_EXAMPLE = """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]"}'"""


def job_script(job: str) -> Path:
    """Return the script of a Spark job, from the folder CALVE_SPARK_JOBS or the repository's `spark_jobs`.

    Raises:
        AirflowFailException: The script does not exist.
    """
    script = Path(os.environ.get("CALVE_SPARK_JOBS") or REPOSITORY / "spark_jobs").absolute() / f"{job}.py"
    if not script.is_file():
        raise AirflowFailException(
            f"the script {script} of Spark job {job} does not exist; set CALVE_SPARK_JOBS to the folder of the scripts"
        )
    return script


def submit_command(script: Path, *, name: str, conn_id: str, conf: Mapping[str, str], settings_path: Path) -> list[str]:
    """Return the spark-submit command that runs a script; the caller appends the script's arguments.

    In cluster mode, which the connection asks for, the driver gets Calve's code as a zip file, and the variables that
    it needs from a file of settings.

    Args:
        script: A Python file.
        name: Name of the application in Spark's UI.
        conn_id: Airflow connection that names the master.
        conf: Spark configuration; overrides the defaults for small jobs.
        settings_path: The file to write for a driver in cluster mode; only its owner can read its folder.

    Raises:
        AirflowFailException: The connection does not exist, or asks for a cluster mode that Spark does not have, or
            spark-submit cannot be found.
    """
    # Imported late, because the imports take longer than parsing all DAG files.
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from catalog.settings.code_archive import code_archive
    from catalog.settings.spark_settings import session_defaults, with_storage

    master, in_cluster = _master(conn_id)
    defaults = {**_cluster_defaults(master, in_cluster=in_cluster), **session_defaults(), "spark.log.level": "WARN"}
    hook = SparkSubmitHook(
        conf=with_storage({**defaults, **conf}),
        conn_id=conn_id,
        name=name,
        deploy_mode="cluster" if in_cluster else "client",
        py_files=str(code_archive()) if in_cluster else None,
        properties_file=str(_driver_settings(settings_path, master)) if in_cluster else None,
    )
    program, *arguments = hook._build_spark_submit_command(str(script))
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program_path = shutil.which(program, path=search_path)
    if program_path is None:
        raise AirflowFailException(f"{program} is not on the PATH of this Airflow worker; install pyspark there")
    # Else the file of settings would replace Spark's own.
    return [program_path, *(["--load-spark-defaults"] if in_cluster else []), *arguments]


def has_drivers_on_cluster(conn_id: str) -> bool:
    """Return whether an Airflow connection asks for cluster mode, in which drivers are not on this host.

    Raises:
        AirflowFailException: As for `submit_command`.
    """
    return _master(conn_id)[1]


MORE_ENVIRONMENT = "CALVE_JOB_ENVIRONMENT"
"""The variable with a comma-separated list of further variables for jobs; `NAME_*` means all with this prefix."""

_NEEDED = (
    # The system, Java and Python.
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("JAVA_HOME", "JAVA_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "PYTHON*", "VIRTUAL_ENV"),
    # Spark, Hadoop, and what runs them.
    *("SPARK_*", "PYSPARK_*", "HADOOP_*", "YARN_*", "KUBECONFIG", "KUBERNETES_SERVICE_*", "KRB5*", "OMP_NUM_THREADS"),
    # Calve and its database.
    *("CALVE_*", "PG*", "GX_ANALYTICS_ENABLED"),
    # Storage and network.
    *(
        "AWS_*",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
        "AZURE_*",
        "ARROW_*",
        "LIBHDFS_*",
        "CLASSPATH",
    ),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
_NEVER = "AIRFLOW*"
JOB_CATALOG_URL = "CALVE_JOB_CATALOG_URL"
"""The variable with the catalog's URL for jobs, with a role of their own."""


def submit_environment() -> dict[str, str]:
    """Return the environment of a job: the variables of this process that jobs need, and none of Airflow's.

    Jobs run with this process's Python, unless PYSPARK_PYTHON names another. On a cluster, Spark's settings of its
    interpreters take precedence. `CALVE_JOB_ENVIRONMENT` adds variables.
    """
    patterns = (*_NEEDED, *_more_patterns())
    allowed = {
        name: value for name, value in os.environ.items() if _is_among(name, patterns) and not fnmatchcase(name, _NEVER)
    }
    if url := allowed.pop(JOB_CATALOG_URL, None):
        allowed["CALVE_CATALOG_URL"] = url
    return {"PYSPARK_PYTHON": sys.executable, **_spark_home(), **allowed}


def _more_patterns() -> list[str]:
    return [pattern.strip() for pattern in os.environ.get(MORE_ENVIRONMENT, "").split(",") if pattern.strip()]


def _is_among(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _spark_home() -> dict[str, str]:
    """Return the folder of this environment's Spark; spark-submit would look for it with PYSPARK_PYTHON."""
    spec = find_spec("pyspark")
    return {"SPARK_HOME": str(Path(spec.origin).parent)} if spec and spec.origin else {}


_OF_DRIVERS = ("CALVE_*", "PG*", "AWS_*", "AZURE_*", "GOOGLE_*", "GX_ANALYTICS_ENABLED")
_OF_THIS_HOST = ("CALVE_HOME", "CALVE_TABLES", "CALVE_SPARK_*", "CALVE_JOB_*", "PGPASSFILE")


def _driver_settings(path: Path, master: str) -> Path:
    """Write the environment of a driver in cluster mode as settings of Spark; return the file.

    Passwords are in variables that Spark redacts in its event log by their names. On Kubernetes, everyone who can read
    pods could read them: they have to come from a secret.
    """
    from sqlalchemy import make_url

    from catalog.settings.spark_settings import properties
    from catalog.storage.urls import password_of, url_without_secrets

    environment = submit_environment()
    if url := environment.get("CALVE_CATALOG_URL"):
        database = make_url(url)
        environment["CALVE_CATALOG_URL"] = url_without_secrets(database).render_as_string(hide_password=False)
        if password := password_of(database):
            environment["PGPASSWORD"] = password
    patterns = (*_OF_DRIVERS, *_more_patterns())
    variables = {name: value for name, value in environment.items() if _is_among(name, patterns)}
    variables = {name: value for name, value in variables.items() if not _is_among(name, _OF_THIS_HOST)}
    prefix = "spark.yarn.appMasterEnv"
    if master.startswith("k8s:"):
        prefix = "spark.kubernetes.driverEnv"
        variables = {name: value for name, value in variables.items() if not is_name_of_secret(name)}
    path.touch(mode=0o600)
    path.write_text(properties({f"{prefix}.{name}": value for name, value in variables.items()}), encoding="utf-8")
    return path


def _cluster_defaults(master: str, *, in_cluster: bool) -> dict[str, str]:
    """Return bounds for what one job takes of a cluster, and its interpreters; none that Spark's own file sets.

    A local master needs none: its executors are in the driver's process.
    """
    if is_local_master(master):
        return {}
    defaults = {
        "spark.executor.memory": "2g",
        # Not this worker's interpreter: its virtual environment is not on the cluster's hosts.
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON") or "python3",
    }
    if in_cluster:
        # The task submits a job that is lost, as another attempt; an attempt of YARN's could not commit.
        defaults["spark.yarn.maxAppAttempts"] = "1"
    else:
        defaults["spark.pyspark.driver.python"] = os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable
    if master.startswith("spark://"):
        # A standalone cluster gives its first job all cores by default.
        defaults["spark.cores.max"] = "4"
    known = _names_in_spark_defaults()
    return {name: value for name, value in defaults.items() if name not in known}


def _names_in_spark_defaults() -> set[str]:
    """Return the names in this worker's `spark-defaults.conf`, which settings on the command line would override."""
    home = os.environ.get("SPARK_HOME") or _spark_home().get("SPARK_HOME", ".")
    folder = os.environ.get("SPARK_CONF_DIR") or Path(home, "conf")
    path = Path(folder, "spark-defaults.conf")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return {re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines}


def _master(conn_id: str) -> tuple[str, bool]:
    """Return the host of a connection, which names Spark's master, and whether drivers run on the cluster."""
    # Checked here, because the hook falls back to YARN if the connection is missing.
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise AirflowFailException(
            f"Airflow connection {conn_id!r} does not exist, so Spark's master is unknown; "
            f"create it, for instance {_CONNECTION_EXAMPLE}"
        ) from error
    master, mode = connection.host or "yarn", connection.extra_dejson.get("deploy-mode") or "client"
    if mode not in ("client", "cluster"):
        raise AirflowFailException(f"Airflow connection {conn_id!r} has deploy-mode {mode!r}; use client or cluster")
    in_cluster = mode == "cluster"
    if in_cluster and not master.startswith(("yarn", "k8s:")):
        raise AirflowFailException(
            f"Airflow connection {conn_id!r} has deploy-mode cluster, which Spark does not have for Python jobs on "
            f"{master}, only on YARN and Kubernetes; remove it"
        )
    if master.startswith("k8s:") and not find_spec("kubernetes"):
        # The hook only names an undefined variable.
        raise AirflowFailException(
            f"Airflow connection {conn_id!r} names {master}, for which Spark's provider needs another one; install "
            "apache-airflow-providers-cncf-kubernetes on this Airflow worker"
        )
    return master, in_cluster
