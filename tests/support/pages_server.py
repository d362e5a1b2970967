"""Airflow's API server with Calve's pages, with runs that wait for answers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from standalone.pages_server import ROLES
from standalone.pages_server import PagesServer as Server

__all__ = ["ROLES", "PagesServer"]


class PagesServer(Server):
    """The API server, in whose database tests start runs and ask questions."""

    def start_run(self, user: str, dag_id: str, form: Mapping[str, Any]) -> str:
        """Start a run of a DAG as a user; return its id. It stays in the queue."""
        body = json.dumps({"logical_date": None, "conf": form}).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token(user)}"}
        request = urllib.request.Request(f"{self.url}/api/v2/dags/{dag_id}/dagRuns", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            run: dict[str, Any] = json.load(answer)
        return str(run["dag_run_id"])

    def end_run(self, dag_id: str, run_id: str, state: str = "success") -> None:
        """Have a run end, as the scheduler does after its last task."""
        from airflow.models.dagrun import DagRun
        from sqlalchemy import create_engine, update

        engine = create_engine(self.database_url)
        with engine.begin() as connection:
            of_run = (DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            connection.execute(update(DagRun).where(*of_run).values(state=state))
        engine.dispose()

    def fail_task(self, dag_id: str, run_id: str, task_id: str, reason: str | None = None) -> None:
        """Have a task of a run fail, as its worker does."""
        from airflow.models.dagrun import DagRun
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.xcom import XComModel
        from sqlalchemy import create_engine, insert, select, update

        engine, task = create_engine(self.database_url), TaskInstance
        with engine.begin() as connection:
            of_run = {"dag_id": dag_id, "run_id": run_id}
            chosen = (task.dag_id == dag_id, task.run_id == run_id, task.task_id == task_id)
            connection.execute(update(task).where(*chosen).values(state="failed"))
            if reason is not None:
                number = connection.scalar(select(DagRun.id).filter_by(**of_run))
                pushed = {"task_id": task_id, "dag_run_id": number, "key": "failure", "value": reason}
                connection.execute(insert(XComModel).values(**of_run, **pushed))
        engine.dispose()

    def end_task(self, dag_id: str, run_id: str, task_id: str, result: Any) -> None:
        """Have a task of a run succeed, as its worker does."""
        from airflow.models.dagrun import DagRun
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
        from sqlalchemy import create_engine, insert, select, update

        engine, task = create_engine(self.database_url), TaskInstance
        with engine.begin() as connection:
            of_run = {"dag_id": dag_id, "run_id": run_id}
            chosen = (task.dag_id == dag_id, task.run_id == run_id, task.task_id == task_id)
            connection.execute(update(task).where(*chosen).values(state="success", end_date=datetime.now(UTC)))
            number = connection.scalar(select(DagRun.id).filter_by(**of_run))
            returned = {"task_id": task_id, "dag_run_id": number, "key": XCOM_RETURN_KEY, "value": result}
            connection.execute(insert(XComModel).values(**of_run, **returned))
        engine.dispose()

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
