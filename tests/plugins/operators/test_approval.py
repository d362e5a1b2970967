"""Deletions wait for a person's approval, which covers only what the person saw."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.api_fastapi.execution_api.datamodels.hitl import HITLDetailRequest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskAwaitingInput,
)
from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
from sqlalchemy import update

from calve_airflow.operators.approval import (
    PATIENCE,
    ApproveDeletionOperator,
    Question,
    code,
    find_approval,
    key_of,
    operation_of,
    require_approval,
)
from catalog import Catalog
from catalog.operations.approvals import VALID_MS
from catalog.storage.schema import ApprovalRow

ASKED = Question("Delete 10 rows?", "**10 rows** would be gone", ["abc"], "demo.t")


class Airflow:
    """A store of a task's questions like Airflow's, which keeps the first one when the task is cleared."""

    def __init__(self) -> None:
        self.kept: HITLDetailRequest | None = None

    def send(self, msg: CreateHITLDetailPayload) -> HITLDetailRequestResult:
        """Accept the server's requests, and respond with the stored question."""
        self.kept = self.kept or HITLDetailRequest.model_validate(msg.model_dump(exclude={"type"}))
        return HITLDetailRequestResult(**self.kept.model_dump())


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    kept = Airflow()
    monkeypatch.setattr("airflow.sdk.execution_time.task_runner.SUPERVISOR_COMMS", kept, raising=False)
    return kept


@pytest.fixture
def context() -> Context:
    ti = SimpleNamespace(id=uuid4(), map_index=-1, xcom_push=lambda key, value: None)
    run = SimpleNamespace(triggering_user_name="asker", dag_id="drop", run_id="run")
    dag = SimpleNamespace(params={})
    return Context(ti=ti, task_instance=ti, dag_run=run, dag=dag, params={})  # type: ignore[typeddict-item]  # other keys are not used


pytestmark = pytest.mark.usefixtures("empty_catalog")


def approve(asked: Question | None) -> ApproveDeletionOperator:
    return ApproveDeletionOperator(task_id="approve", ask=lambda _catalog, _context: asked)


def answer(option: str, user: str | None = "boss") -> dict[str, Any]:
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime(2026, 1, 1, tzinfo=UTC),
        "responded_by_user": user and {"id": user, "name": user},
        "timedout": user is None,
    }


def test_nobody_is_asked_when_nothing_is_deleted(context: Context) -> None:
    with pytest.raises(AirflowSkipException, match="nothing is deleted"):
        approve(None).execute(context)


def test_question_is_shown_and_waited_for(airflow: Airflow, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("calve_airflow.operators.approval.notify", lambda _, *what, **more: told.append((what, more)))
    with pytest.raises(TaskAwaitingInput) as waiting:
        approve(ASKED).execute(context)
    assert airflow.kept is not None
    assert airflow.kept.subject == ASKED.subject
    assert airflow.kept.body == f"{ASKED.body}\n\nDigest `{key_of('abc')[:16]}`"
    assert airflow.kept.defaults == ["Reject"]
    assert (waiting.value.kwargs, waiting.value.timeout) == ({"keys": ["abc"], "table": "demo.t"}, PATIENCE)
    assert told == [(("on_approval", "demo.t", ASKED.subject), {"body": airflow.kept.body})]


def test_same_question_is_asked_again_when_the_task_is_cleared(airflow: Airflow, context: Context) -> None:
    for _ in range(2):
        with pytest.raises(TaskAwaitingInput):
            approve(ASKED).execute(context)


@pytest.mark.parametrize(("body", "key"), [("**12 rows** would be gone", "abc"), (ASKED.body, "def")])
def test_another_question_is_not_asked_where_airflow_shows_the_first(
    airflow: Airflow, context: Context, body: str, key: str
) -> None:
    with pytest.raises(TaskAwaitingInput):
        approve(ASKED).execute(context)
    with pytest.raises(AirflowFailException, match="start the DAG again with the same form"):
        approve(Question(ASKED.subject, body, [key])).execute(context)


def test_approval_holds_for_its_deletion_and_run(context: Context, empty_catalog: Catalog) -> None:
    approval = approve(ASKED).execute_complete(context, answer("Approve"), keys=["abc"])
    assert approval == {"approved_by": "boss", "approved_at": "2026-01-01T00:00:00+00:00"}
    require_approval(empty_catalog, context, "abc")
    with pytest.raises(AirflowFailException, match="exactly this deletion is not approved"):
        require_approval(empty_catalog, context, "def")
    context["dag_run"].run_id = "another"
    assert find_approval(empty_catalog, context, "abc") is None


def test_approval_expires_and_stays_on_record(context: Context, empty_catalog: Catalog) -> None:
    approve(ASKED).execute_complete(context, answer("Approve"), keys=["abc"])
    with empty_catalog.storage.write() as connection:
        given = ApprovalRow.approved_at_ms
        connection.execute(update(ApprovalRow).values(approved_at_ms=given - VALID_MS - 1))
    assert find_approval(empty_catalog, context, "abc") is None
    known = empty_catalog.approvals.find(operation_of(context), "abc")
    assert known is not None
    assert (known.approved_by, known.is_expired) == ("boss", True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\n**b**", "`a **b**`"),
        ("a ` b", "`` a ` b ``"),
        ("`a``b`", "``` `a``b` ```"),
        ("", "``"),
        ("\u202eED\u202c", r"`\u202eED\u202c`"),
    ],
)
def test_text_of_users_is_no_markdown(text: str, shown: str) -> None:
    assert code(text) == shown


def test_nobody_approves_what_he_asked_for(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="asker requested and approved this, but another person"):
        approve(ASKED).execute_complete(context, answer("Approve", "asker"), keys=["abc"])
    monkeypatch.setenv("CALVE_SELF_APPROVAL", "true")
    approval = approve(ASKED).execute_complete(context, answer("Approve", "asker"), keys=["abc"])
    assert approval["approved_by"] == "asker"


@pytest.mark.parametrize("user", [{"id": "asker", "name": "A. Sker"}, {"id": "17", "name": "asker"}])
def test_requester_is_recognised_by_id_and_by_name(context: Context, user: dict[str, str]) -> None:
    with pytest.raises(AirflowFailException, match="asker requested and approved this"):
        approve(ASKED).execute_complete(context, {**answer("Approve"), "responded_by_user": user}, keys=["abc"])


@pytest.mark.parametrize("user", ["boss", None], ids=["rejected", "not answered in time"])
def test_reject_skips_everything_behind_it(context: Context, user: str | None) -> None:
    with DAG("approving", schedule=None):
        first = approve(ASKED)
        first >> EmptyOperator(task_id="next") >> EmptyOperator(task_id="last", trigger_rule="none_failed")
    context["task"] = first
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        first.execute_complete(context, answer("Reject", user), keys=["abc"])
    assert set(skipped.value.tasks) == {"next", "last"}
