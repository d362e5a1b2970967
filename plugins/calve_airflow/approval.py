"""Asking a person before something is deleted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput

if TYPE_CHECKING:
    from airflow.sdk import Context

PATIENCE = timedelta(days=7)
"""No answer for so long is a Reject."""

SELF_APPROVAL = "CALVE_SELF_APPROVAL"
"""The environment variable that, set to `true`, lets one person ask for a deletion and approve it."""

QUESTION = "question"
"""The XCom in which a task says what is to be approved."""


def question(subject: str, body: str, key: str) -> dict[str, str]:
    """Return what `ApproveDeletionOperator` asks.

    Args:
        body: Markdown.
        key: Tells this deletion from every other one; it comes back with the answer.
    """
    return {"subject": subject, "body": body, "key": key}


def asked_by(context: Context) -> str:
    """Return who started a run, as Markdown."""
    run = context["dag_run"]
    name = run.triggering_user_name
    return f"**{name}**" if name else f"the run `{run.run_id}`, which nobody started by hand"


def key_of(*parts: object) -> str:
    """Return a key that stands for just these things, such as statements and tables."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def require_approval(answer: Mapping[str, Any] | None, key: str) -> None:
    """Make sure that a person has approved the deletion that the key stands for.

    Raises:
        AirflowFailException: Nobody has.
    """
    if not is_approved(answer, key):
        raise AirflowFailException(
            "nobody has approved just this deletion; nothing was changed. Start the DAG again with the same form, and "
            "let somebody approve it"
        )


def is_approved(answer: Mapping[str, Any] | None, key: str) -> bool:
    """Return whether what `ApproveDeletionOperator` returned approves the deletion that the key stands for."""
    return answer is not None and answer["key"] == key


class ApproveDeletionOperator(ApprovalOperator):
    """Waits, without a worker slot, until a person approves a deletion; skipped where nothing is deleted.

    The person is not the one who asked for it, unless `CALVE_SELF_APPROVAL` is `true` on the workers.

    Reject, and no answer for `PATIENCE`, skip all tasks behind it: the run succeeds, and nothing is changed.

    Args:
        question: What `question` returned (templated); None or none when nothing is deleted.

    Returns:
        `key` of what was approved, `approved_by`, and `approved_at`.

    Raises:
        AirflowSkipException: Nothing is deleted.
        AirflowFailException: The task asked something else before, and Airflow would show that; or the one who
            approved is the one who asked.
    """

    template_fields: Sequence[str] = ("question",)
    template_fields_renderers = {"question": "json"}  # noqa: RUF012 - read by Airflow

    def __init__(self, *, question: Mapping[str, str] | None, **kwargs: Any) -> None:
        super().__init__(
            subject="", defaults="Reject", response_timeout=PATIENCE, ignore_downstream_trigger_rules=True, **kwargs
        )
        self.question = question

    def execute(self, context: Context) -> None:
        """Ask, and wait."""
        if not self.question:
            raise AirflowSkipException("nothing is deleted, so nobody has to approve it")
        self.subject, self.body = self.question["subject"], self.question["body"]
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            self._refuse_another_question(context)
            # What `plan` says may be another thing when the answer comes.
            waiting.kwargs = {"key": self.question["key"]}
            raise

    def execute_complete(self, context: Context, event: dict[str, Any], key: str = "") -> dict[str, Any]:
        """Go on, or skip the rest."""
        answer = super().execute_complete(context, event)
        user = answer["responded_by_user"]
        _refuse_own_approval(context, user)
        return {"key": key, "approved_by": user and user["name"], "approved_at": answer["responded_at"].isoformat()}

    def _refuse_another_question(self, context: Context) -> None:
        """Make sure that people see this question: of a cleared task Airflow keeps the first one."""
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        asked = CreateHITLDetailPayload(
            ti_id=context["task_instance"].id,
            options=self.options,
            subject=self.subject,
            body=self.body,
            params={},
            assigned_users=[],
        )
        shown = SUPERVISOR_COMMS.send(asked)
        if not isinstance(shown, HITLDetailRequestResult) or (shown.subject, shown.body) != (self.subject, self.body):
            raise AirflowFailException(
                "this run has asked about another deletion before, and Airflow goes on showing that one; start the DAG "
                "again with the same form"
            ) from None


def _refuse_own_approval(context: Context, user: Mapping[str, Any] | None) -> None:
    if (os.environ.get(SELF_APPROVAL) or "").lower() == "true":
        return
    requester = context["dag_run"].triggering_user_name
    if user is None or (requester is not None and requester in (user["name"], user["id"])):
        raise AirflowFailException(
            f"{requester or 'somebody unknown'} asked for this deletion and approved it, and another person has to "
            f"approve; nothing was changed. Start the DAG again, and let somebody else approve it, or set "
            f"{SELF_APPROVAL}=true for the workers"
        )
