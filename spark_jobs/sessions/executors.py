"""Code and environment variables that executors on other hosts get from the driver of a job.

The variables with passwords are settings of the running application (`spark.executorEnv.*`), which Spark sends to the
executors' processes. They are never on a command line, and not in tasks; their names match those that Spark redacts in
its event log and web pages. On Kubernetes, the settings would be readable in the executors' pods, so that passwords
have to come from a secret (`spark.kubernetes.executor.secretKeyRef.*`).
"""

from __future__ import annotations

from pyspark import SparkConf, SparkContext
from sqlalchemy import URL

from catalog.files import object_stores
from catalog.settings.code_archive import code_archive, runs_from_archive
from catalog.settings.environment import is_local_master
from catalog.settings.secret_names import SECRET_NAMES, is_name_of_secret
from catalog.storage.urls import password_of

_PREFIX = "spark.executorEnv."
_SECRETS = ("PGPASSWORD", *object_stores.SECRET_VARIABLES)
_REDACTION = "spark.redaction.regex"


def executor_settings(database: URL, master: str) -> dict[str, str]:
    """Return the settings with which executors reach the storage and the catalog; none for a local master.

    Args:
        database: The catalog's database.
        master: Spark's master.
    """
    if is_local_master(master):
        return {}
    variables = object_stores.client_variables()
    if database.get_backend_name() == "postgresql" and (password := password_of(database)):
        # The address that tasks carry has no password.
        variables["PGPASSWORD"] = password
    if master.startswith("k8s:"):
        variables = {name: value for name, value in variables.items() if name not in _SECRETS}
    return {_REDACTION: SECRET_NAMES, **{f"{_PREFIX}{name}": value for name, value in variables.items()}}


def submitted_settings(database: URL) -> dict[str, str]:
    """Return `executor_settings` for the master with which this process was submitted, without overriding any."""
    # With a JVM, the settings are not part of the command that starts one.
    SparkContext._ensure_initialized()
    submitted = SparkConf()
    settings = executor_settings(database, submitted.get("spark.master") or "local")
    return {name: value for name, value in settings.items() if not submitted.contains(name)}


def prepare_executors(context: SparkContext) -> None:
    """Send the code to the executors of a cluster, and remove passwords from what PySpark adds to each task."""
    if is_local_master(str(context.master)):
        return
    # PySpark copies the executors' variables to all tasks; Python in an executor has them already.
    for name in filter(is_name_of_secret, list(context.environment)):
        del context.environment[name]
    if runs_from_archive():
        # In cluster mode, spark-submit has sent it to the executors, too.
        return
    archive = code_archive()
    if archive.name not in {path.rpartition("/")[2] for path in context.listFiles}:
        context.addPyFile(str(archive))
