"""Preparation of Airflow: files and databases before its components start, pools once they run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from psycopg import sql

from standalone.airflow_api import AirflowApi
from standalone.environment import ADMIN, REPOSITORY, SPARK_POOL, VIEWER, StackSettings
from standalone.errors import AirflowApiError
from standalone.postgres import PostgresServer
from standalone.state import airflow_command, passwords_path, shell_file, write_private

AIRFLOW_DATABASE = "airflow"
SPARK_POOL_SLOTS = 2
_TABLES = "CALVE_TABLES"


def write_files(settings: StackSettings, environment: Mapping[str, str]) -> None:
    """Write the passwords of Airflow's users, the shell file and Airflow's command, readable only by the owner.

    Args:
        environment: That of the stack's processes.
    """
    settings.airflow_home.mkdir(mode=0o700, exist_ok=True)
    passwords_file = passwords_path(settings.home)
    if not passwords_file.exists():
        write_private(passwords_file, json.dumps({user: secrets.token_urlsafe(12) for user in (ADMIN, VIEWER)}))
    variables = settings.calve_variables()
    if tables := environment.get(_TABLES):
        variables[_TABLES] = os.path.abspath(tables)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    programs = shlex.quote(str(Path(sys.executable).parent))
    write_private(shell_file(settings.home), "\n".join([*exports, f'export PATH={programs}:"$PATH"', ""]))
    words = map(shlex.quote, (sys.executable, "-m", "standalone.airflow_command", str(settings.home)))
    call = f'PYTHONPATH={shlex.quote(str(REPOSITORY))} exec {" ".join(words)} "$@"'
    command = airflow_command(settings.home)
    write_private(command, f"#!/bin/sh\n{call}\n")
    command.chmod(0o700)


def is_airflow_migrated(postgres: PostgresServer) -> bool:
    """Return whether `note_airflow_migration` was called for this version; Airflow's own check takes seconds."""
    with postgres.connect() as connection:
        query = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
        return connection.execute(query, [AIRFLOW_DATABASE]).fetchone() == (_migration_note(),)


def note_airflow_migration(postgres: PostgresServer) -> None:
    """Record the version of Airflow's schema as a comment on its database."""
    with postgres.connect() as connection:
        comment = sql.SQL("COMMENT ON DATABASE {} IS {}")
        connection.execute(comment.format(sql.Identifier(AIRFLOW_DATABASE), sql.Literal(_migration_note())))


def prepare_airflow(api: AirflowApi) -> None:
    """Create the pool of Spark jobs through Airflow's API, and initialise the API for the first task.

    Raises:
        AirflowApiError: The API does not respond yet, or refuses a request.
    """
    api.warm_up()
    # Deferred tasks included, because their Spark jobs run.
    pool = {
        "name": SPARK_POOL,
        "slots": SPARK_POOL_SLOTS,
        "description": "Concurrent Spark jobs",
        "include_deferred": True,
    }
    try:
        api.get(f"/pools/{SPARK_POOL}")
    except AirflowApiError as error:
        if error.status != 404:
            raise
        api.post("/pools", pool)


def _migration_note() -> str:
    return f"migrated to Airflow {importlib.metadata.version('apache-airflow')}"
