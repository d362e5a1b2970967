"""Spark applications that run several jobs: which one takes a job, and the command that starts one."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from calve_airflow.submitting.attempts import recorded_process
from calve_airflow.submitting.job_process import JobProcess
from catalog.operations.records import JobKey
from catalog.settings.environment import SessionScope, session_idle_seconds, session_scope
from catalog.settings.secret_names import is_name_of_secret

if TYPE_CHECKING:
    from catalog.operations.applications import SparkApplications

SCRIPT = "run_jobs"
"""The job script of applications."""

_WITH_PASSWORD = "CATALOG_URL"
_ENDING_SECONDS, _PAUSE_SECONDS = 5.0, 0.1

JOBS: dict[SessionScope, frozenset[str]] = {
    SessionScope.STEP: frozenset(),
    SessionScope.LOAD: frozenset({"validate_source", "write_partitions", "check_quality"}),
}
"""Scope → the scripts that share applications: neither those that run statements of users, nor those with secrets."""
JOBS[SessionScope.SHARED] = JOBS[SessionScope.LOAD] | {
    *("build_partition_index", "verify_partition_index", "count_values", "rewrite_partitions", "verify_rewrite"),
    *("stage_migration", "verify_migration"),
}


def shared_version(job: str) -> str | None:
    """Return the version of the code of jobs that share an application; None if the settings let this one not share.

    Nor does it where only the scripts are known, and not the packages that they import.

    Raises:
        InvalidConfigurationError: A setting is wrong.
    """
    from catalog.errors import InvalidConfigurationError
    from catalog.settings.code_archive import code_digest

    if job not in JOBS[session_scope()] or not session_idle_seconds():
        return None
    try:
        return code_digest()
    except InvalidConfigurationError:
        return None


def application_key(version: str, command: Sequence[str], environment: Mapping[str, str], operation_id: str) -> str:
    """Return a digest of all that jobs must have in common to share an application.

    These are the version of the code, the command that submits it, its environment but for secrets, and unless it is
    `shared`, the operation.
    """
    scope = "" if session_scope() is SessionScope.SHARED else operation_id
    variables = {
        name: value for name, value in environment.items() if not is_name_of_secret(name) and _WITH_PASSWORD not in name
    }
    parts = [version, scope, list(command), sorted(variables.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def hand_over(applications: SparkApplications, key: str, job: JobKey, process: JobProcess) -> bool:
    """Give a job to an idle application of this key on this host, if there is one.

    An application that is about to end the step before is waited for.

    Args:
        process: The job's folder, which refers to the application afterwards.
    """
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        running = [
            (application, first)
            for application in applications.of_key(key, socket.gethostname())
            if (first := recorded_process(application.log_path)).is_application_alive
        ]
        for application, first in running:
            if application.job is None and applications.hand_over(application.id, job):
                # After the hand-over: a job whose task is killed in between seems lost, and does not wait for ever.
                process.join(first)
                return True
        is_ending = any(known.job and known.job.operation_id == job.operation_id for known, _ in running)
        if not is_ending or time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)


def open_application(applications: SparkApplications, key: str, job: JobKey, process: JobProcess) -> str:
    """Record a new application with its first job, in whose folder it is to be started; return its id.

    Args:
        process: The job's folder.
    """
    application_id = uuid4().hex
    process.become_application()
    applications.open(application_id, key, socket.gethostname(), str(process.log_path), job)
    return application_id
