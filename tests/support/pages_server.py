"""Airflow's API server with Calve's pages, for tests and for looking at the pages.

It runs without Airflow's other components: pages are read, and runs that they start wait in the queue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from standalone.environment import REPOSITORY
from standalone.postgres import HOST, free_port
from standalone.server_process import ServerProcess

ROLES = ("viewer", "user", "op", "admin")
"""The roles of Airflow's simple auth manager; there is a user of each name."""


class PagesServer:
    """The API server, which runs during a block of code; its users' passwords are their names.

    Args:
        folder: An empty folder for Airflow's home.
        catalog_url: The catalog that the pages show.
        variables: Further environment variables.
    """

    def __init__(self, folder: Path, catalog_url: str, variables: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        self.folder = folder
        self.home = folder
        self.log_path = folder / "api-server.log"
        self.database_url = f"sqlite:///{folder}/airflow.db"
        passwords = folder / "passwords.json"
        passwords.write_text(json.dumps({role: role for role in ROLES}))
        self._variables = {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database_url,
            "CALVE_CATALOG_URL": catalog_url,
            "CALVE_HOME": str(folder),
            "CALVE_QUALITY_PAGES": str(folder / "quality"),
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")]),
            **(variables or {}),
        }
        self._server = ServerProcess("Airflow's API server", folder, self.log_path)

    def __enter__(self) -> Self:
        for arguments in (["db", "migrate"], ["dags", "reserialize"]):
            self.airflow(*arguments)
        command = ["env", *(f"{name}={value}" for name, value in self._variables.items())]
        self._server.start([*command, sys.executable, "-m", "airflow", "api-server"], self._is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def airflow(self, *arguments: str) -> None:
        """Run a command of Airflow."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(
            command, env={**os.environ, **self._variables}, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def token(self, user: str) -> str:
        """Return a token of a user, for the cookie `_token` or as a bearer token."""
        body = json.dumps({"username": user, "password": user}).encode()
        request = urllib.request.Request(
            f"{self.url}/auth/token", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            token: dict[str, Any] = json.load(answer)
        return str(token["access_token"])

    def start_run(self, user: str, dag_id: str, form: Mapping[str, Any]) -> str:
        """Start a run of a DAG as a user; return its id. It stays in the queue."""
        body = json.dumps({"logical_date": None, "conf": form}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token(user)}"}
        request = urllib.request.Request(f"{self.url}/api/v2/dags/{dag_id}/dagRuns", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            run: dict[str, Any] = json.load(answer)
        return str(run["dag_run_id"])

    def ask(
        self, dag_id: str, run_id: str, subject: str, body: str, task_id: str = "approve", seconds_ago: float = 60
    ) -> None:
        """Have a task of a run wait for an answer to a question, as its operator does."""
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from sqlalchemy import create_engine, update
        from sqlalchemy.orm import Session

        engine, task = create_engine(self.database_url), TaskInstance
        chosen = (task.dag_id == dag_id, task.run_id == run_id, task.task_id == task_id)
        with Session(engine) as session:
            values = {"state": "awaiting_input", "next_method": "execute_complete"}
            session.execute(update(task).where(*chosen).values(values))
            (found,) = session.query(task.id).filter(*chosen).one()
            options = ["Approve", "Reject"]
            detail = HITLDetail(ti_id=found, options=options, subject=subject, body=body, defaults=["Reject"])
            detail.created_at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
            session.add(detail)
            session.commit()
        engine.dispose()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/version", timeout=5):
                return True
        except OSError:
            return False
