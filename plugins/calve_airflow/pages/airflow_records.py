"""What the pages read of Airflow's own database: forms of DAGs, and questions that wait for a person's answer.

They run in the API server, which reads it in the same way. All that depends on Airflow's tables is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

APPROVAL_TASK = "approve"
"""The task of Calve's DAGs that asks for an approval (`calve_airflow.operators.approval`)."""

_MOST = 100


@dataclass(frozen=True)
class Question:
    """A question that waits for an answer.

    Attributes:
        body: Markdown.
        asked_by: The user who started the run; None if nobody did.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    subject: str
    body: str | None
    asked_by: str | None
    asked_at: datetime

    @property
    def operation_id(self) -> str:
        """The operation of the run."""
        return f"{self.dag_id}/{self.run_id}"


def waiting_questions(user: BaseUser, operation_id: str | None = None) -> list[Question]:
    """Return the questions of approval tasks without an answer, oldest first, of DAGs that a user may read.

    Args:
        user: The user.
        operation_id: Only those of this operation's run.
    """
    readable = get_auth_manager().get_authorized_dag_ids(user=user)
    query = (
        select(
            TaskInstance.dag_id,
            TaskInstance.run_id,
            TaskInstance.task_id,
            TaskInstance.map_index,
            HITLDetail.subject,
            HITLDetail.body,
            DagRun.triggering_user_name,
            HITLDetail.created_at,
        )
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .join(TaskInstance.dag_run)
        .where(
            HITLDetail.responded_at.is_(None),
            TaskInstance.task_id == APPROVAL_TASK,
            TaskInstance.dag_id.in_(readable),
            TaskInstance.state == "awaiting_input",
        )
        .order_by(HITLDetail.created_at)
        .limit(_MOST)
    )
    if operation_id is not None:
        dag_id, _, run_id = operation_id.partition("/")
        query = query.where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    with create_session(scoped=False) as session:
        return [Question(*row) for row in session.execute(query)]


@dataclass(frozen=True)
class DagForm:
    """The form of a DAG.

    Attributes:
        fields: Name → the field's JSON schema, with `value` and `description`.
        is_paused: Whether runs wait until somebody unpauses the DAG.
    """

    fields: Mapping[str, Mapping[str, Any]]
    is_paused: bool


def find_form(dag_id: str) -> DagForm | None:
    """Return the form of a DAG; None if Airflow does not know the DAG."""
    with create_session(scoped=False) as session:
        model = session.get(DagModel, dag_id)
        stored = None if model is None or model.is_stale else SerializedDagModel.get(dag_id, session=session)
        if model is None or stored is None:
            return None
        params = stored.dag.params
        fields = {}
        for name in params:
            param = params.get_param(name)
            fields[name] = {**param.schema, "value": param.value, "description": param.description or ""}
        return DagForm(fields, bool(model.is_paused))


@dataclass(frozen=True)
class KnownDag:
    """A DAG that Airflow has read.

    Attributes:
        is_periodic: Whether it has a schedule in time, so that Airflow can backfill it.
    """

    is_periodic: bool
    is_paused: bool


def known_dags(dag_ids: Sequence[str]) -> dict[str, KnownDag]:
    """Return those of some DAGs that Airflow has, by their ids."""
    query = select(DagModel.dag_id, DagModel.timetable_periodic, DagModel.is_paused)
    query = query.where(DagModel.dag_id.in_(dag_ids), DagModel.is_stale.is_(False))
    with create_session(scoped=False) as session:
        return {dag_id: KnownDag(bool(periodic), bool(paused)) for dag_id, periodic, paused in session.execute(query)}
