"""Questions of Calve's DAGs that wait for a person's answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
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
