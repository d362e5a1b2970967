"""Rows of Airflow's own database that the pages read: forms and runs of DAGs, and questions with their answers.

They run in the API server, which reads it in the same way. All that depends on Airflow's tables is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import Select, and_, select

from calve_airflow.failure_reasons import FAILURE
from calve_airflow.pages.open_catalog import Remembered

APPROVAL_TASK = "approve"
"""The task of Calve's DAGs that asks for an approval (`calve_airflow.operators.approval`)."""

_MOST = 100
_RETURNED = "return_value"
"""The XCom with what a task has returned."""
_LEAVING = timedelta(seconds=3)
_RECORDING = timedelta(seconds=10)


@dataclass(frozen=True)
class Question:
    """A question that a run asks, with its answer if there is one.

    Attributes:
        body: Markdown.
        asked_by: The user who started the run; None if nobody did.
        chosen: The chosen options; empty without an answer.
        answered_by: The user who answered; None if nobody did, or if the question has expired.
        task_state: The state of the task that asked; None before an answer, or if the task was cleared.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    subject: str
    body: str | None
    asked_by: str | None
    asked_at: datetime
    chosen: tuple[str, ...] = ()
    answered_by: str | None = None
    answered_at: datetime | None = None
    task_state: str | None = None

    @property
    def answer(self) -> str:
        """The answer, for people; that of the requester, which the task refuses, is told from an approval."""
        answer = ", ".join(self.chosen) or "No answer"
        return f"{answer} (refused)" if "Approve" in self.chosen and not self.is_approved else answer

    @property
    def is_approved(self) -> bool:
        """Whether an approval was chosen, and the task has not refused it."""
        return "Approve" in self.chosen and self.task_state != "failed"

    @property
    def asked_at_ms(self) -> int:
        """The time of the question, in milliseconds since 1970 UTC."""
        return round(self.asked_at.timestamp() * 1000)

    @property
    def answered_at_ms(self) -> int | None:
        """The time of the answer, in milliseconds since 1970 UTC."""
        return None if self.answered_at is None else round(self.answered_at.timestamp() * 1000)

    def is_asked_by(self, user: BaseUser) -> bool:
        """Return whether a user started the run that asks."""
        return self.asked_by is not None and self.asked_by in (user.get_name(), str(user.get_id()))

    @property
    def operation_id(self) -> str:
        """The operation of the run."""
        return f"{self.dag_id}/{self.run_id}"


def waiting_questions(user: BaseUser, operation_id: str | None = None) -> list[Question]:
    """Return the questions of approval tasks without an answer, oldest first, of DAGs that a user may read.

    Those asked in the last seconds are left out: of an answer that comes before the worker has left the task, Airflow
    takes it that the task was killed, and asks again.

    Args:
        user: The user.
        operation_id: Only those of this operation's run.
    """
    query = (
        _questions(user)
        .where(HITLDetail.responded_at.is_(None), TaskInstance.state == "awaiting_input")
        .where(HITLDetail.created_at < datetime.now(UTC) - _LEAVING)
        .order_by(HITLDetail.created_at)
    )
    with create_session(scoped=False) as session:
        return [Question(*row) for row in session.execute(_of_run(query, operation_id))]


def answered_questions(user: BaseUser, operation_id: str | None = None) -> list[Question]:
    """Return the latest questions of approval tasks that are answered, latest answer first.

    Args:
        user: The user; only questions of DAGs that the user may read.
        operation_id: Only those of this operation's run.
    """
    answer = (HITLDetail.chosen_options, HITLDetail.responded_by, HITLDetail.responded_at, TaskInstance.state)
    query = (
        _questions(user)
        .add_columns(*answer)
        .where(HITLDetail.responded_at.is_not(None))
        .order_by(HITLDetail.responded_at.desc())
    )
    with create_session(scoped=False) as session:
        return [_answered(row) for row in session.execute(_of_run(query, operation_id))]


def _of_run(query: Select[*tuple[Any, ...]], operation_id: str | None) -> Select[*tuple[Any, ...]]:
    """Return a query of questions with only those of an operation's run, if one is given."""
    if operation_id is None:
        return query
    dag_id, run_id, *_ = operation_id.split("/", 2)
    return query.where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)


def _answered(row: Sequence[Any]) -> Question:
    *asked, chosen, answerer, answered_at, state = row
    question = Question(*asked)
    name = (answerer or {}).get("name")
    return replace(question, chosen=tuple(chosen or ()), answered_by=name, answered_at=answered_at, task_state=state)


def _questions(user: BaseUser) -> Select[*tuple[Any, ...]]:
    readable = get_auth_manager().get_authorized_dag_ids(user=user)
    asked = (
        TaskInstance.dag_id,
        TaskInstance.run_id,
        TaskInstance.task_id,
        TaskInstance.map_index,
        HITLDetail.subject,
        HITLDetail.body,
        DagRun.triggering_user_name,
        HITLDetail.created_at,
    )
    return (
        select(*asked)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .join(TaskInstance.dag_run)
        .where(TaskInstance.task_id == APPROVAL_TASK, TaskInstance.dag_id.in_(readable))
        .limit(_MOST)
    )


@dataclass(frozen=True)
class TaskResult:
    """The result of the latest run of a task.

    Attributes:
        value: The JSON value that it has returned.
        ended_at: When it ended.
    """

    run_id: str
    value: Any
    ended_at: datetime

    @property
    def ended_at_ms(self) -> int:
        """The time of its end, in milliseconds since 1970 UTC."""
        return round(self.ended_at.timestamp() * 1000)


def latest_result(user: BaseUser, dag_id: str, task_id: str) -> TaskResult | None:
    """Return what the latest successful run of a task has returned; None without one, or if the user may not see it."""
    if dag_id not in get_auth_manager().get_authorized_dag_ids(user=user):
        return None
    task, stored = TaskInstance, XComModel
    is_its = (getattr(stored, name) == getattr(task, name) for name in ("dag_id", "run_id", "task_id", "map_index"))
    query = (
        select(task.run_id, task.end_date, stored.value)
        .join(stored, and_(*is_its, stored.key == _RETURNED))
        .where(task.dag_id == dag_id, task.task_id == task_id, task.state == "success", task.end_date.is_not(None))
        .order_by(task.end_date.desc())
        .limit(1)
    )
    with create_session(scoped=False) as session:
        row = session.execute(query).one_or_none()
    return None if row is None else TaskResult(row.run_id, stored.deserialize_value(row), row.end_date)


@dataclass(frozen=True)
class TaskRun:
    """A task of a run.

    Attributes:
        map_index: -1 if it is not mapped.
        state: None before Airflow schedules it.
        reason: Why it has failed, if that is known.
    """

    task_id: str
    map_index: int
    state: str | None
    reason: str | None = None


@dataclass(frozen=True)
class Run:
    """A run of a DAG, with the tasks that started first, in the order of the DAG.

    Attributes:
        form: The values of the form's fields that were given.
    """

    dag_id: str
    run_id: str
    state: str
    form: Mapping[str, Any]
    tasks: tuple[TaskRun, ...]
    ended_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Whether the run is not finished."""
        return self.state in ("queued", "running")

    @property
    def is_changing(self) -> bool:
        """Whether the run is not finished, or so lately that the reason of a failure may still be recorded."""
        return self.is_running or (self.ended_at is not None and datetime.now(UTC) - self.ended_at < _RECORDING)


def find_run(dag_id: str, run_id: str) -> Run | None:
    """Return a run of a DAG; None if Airflow does not have it."""
    task = TaskInstance
    started = (task.start_date.is_(None), task.start_date, task.task_id, task.map_index)
    place = "dag_id", "run_id", "task_id", "map_index"
    is_its = (getattr(XComModel, name) == getattr(task, name) for name in place)
    is_reason = and_(*is_its, XComModel.key == FAILURE, task.state == "failed")
    query = (
        select(task.task_id, task.map_index, task.state, XComModel.value)
        .outerjoin(XComModel, is_reason)
        .where(task.dag_id == dag_id, task.run_id == run_id)
    )
    with create_session(scoped=False) as session:
        of_run = select(DagRun.state, DagRun.conf, DagRun.end_date).filter_by(dag_id=dag_id, run_id=run_id)
        found = session.execute(of_run).one_or_none()
        if found is None:
            return None
        run_state, form, ended_at = found
        tasks = [
            TaskRun(task_id, map_index, state, None if reason is None else str(reason))
            for task_id, map_index, state, reason in session.execute(query.order_by(*started).limit(_MOST))
        ]
    places = _places.get(dag_id, lambda: _task_places(dag_id))
    tasks.sort(key=lambda task: (places.get(task.task_id, len(places)), task.map_index))
    return Run(dag_id, run_id, str(run_state), dict(form or {}), tuple(tasks), ended_at)


def _task_places(dag_id: str) -> dict[str, int]:
    """Return task → its place among the tasks of a DAG, each after those that it follows; empty without the DAG."""

    def tasks(group: Any) -> Iterator[str]:
        for node in group.topological_sort():
            if hasattr(node, "children"):
                yield from tasks(node)
            else:
                yield node.task_id

    with create_session(scoped=False) as session:
        stored = SerializedDagModel.get(dag_id, session=session)
        return {} if stored is None else {name: place for place, name in enumerate(tasks(stored.dag.task_group))}


_places = Remembered(seconds=60)
"""Orders of tasks: they change with the DAG's file only, and pages that follow a run ask every two seconds."""


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
            # None for a required field without a default.
            fields[name] = {**param.schema, "value": param.resolve(), "description": param.description or ""}
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
