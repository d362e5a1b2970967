"""Approval of deletions, and of other changes, by a person."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput

from calve_airflow.catalog_access import open_catalog
from calve_airflow.forms.operator import FormOperator
from calve_airflow.metrics import Metric, count
from calve_airflow.notifying import notify
from calve_airflow.visible import visible

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.approvals import Approval

PATIENCE = timedelta(days=7)
"""Time without an answer after which the answer counts as Reject."""

SELF_APPROVAL = "CALVE_SELF_APPROVAL"
"""The environment variable that, set to `true`, lets one person ask for a deletion and approve it."""


@dataclass(frozen=True)
class Question:
    """A question that `ApproveDeletionOperator` asks.

    Attributes:
        body: Markdown.
        keys: One for each deletion, or change, that a task performs on its own: a digest of it (`key_of`).
        table: The only table that is concerned, if there is one.
    """

    subject: str
    body: str
    keys: Sequence[str]
    table: str | None = None


Ask: TypeAlias = "Callable[[Catalog, Context], Question | None]"
"""Returns the question to approve before a run continues; None if nothing has to be approved."""


def asked_by(context: Context) -> str:
    """Return the user who started a run, as Markdown."""
    run = context["dag_run"]
    name = run.triggering_user_name
    return f"**{name}**" if name else f"the run `{run.run_id}`, which was not started manually,"


def operation_of(context: Context) -> str:
    """Return the operation id of a run, from Airflow's own record: users may write XComs and mapped arguments."""
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def key_of(*parts: object) -> str:
    """Return a digest that identifies exactly these parts, such as a table and the ids of its partitions."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def code(text: str) -> str:
    """Return a string as inline Markdown code, in one line."""
    line = visible(" ".join(text.split()))
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def find_approval(catalog: Catalog, context: Context, key: str) -> Approval | None:
    """Return the approval of a deletion of this run; None if there is none or it has expired."""
    approval = catalog.approvals.find(operation_of(context), key)
    return None if approval is None or approval.is_expired else approval


def require_approval(catalog: Catalog, context: Context, key: str, *, what: str = "deletion") -> Approval:
    """Return the approval of the deletion that a key identifies.

    Args:
        what: The word for it in the message: `change` if nothing is deleted.

    Raises:
        AirflowFailException: There is no approval, or it has expired.
    """
    approval = find_approval(catalog, context, key)
    if approval is None:
        raise AirflowFailException(
            f"exactly this {what} is not approved; nothing was changed. Start the DAG again with the same form and "
            "have another person approve it"
        )
    return approval


class ApproveDeletionOperator(FormOperator, ApprovalOperator):
    """Task that waits, without a worker slot, until a person approves a deletion; skipped if there is no question.

    The question comes from the run's form and the catalog, and the answer is stored in the catalog
    (`catalog.operations.approvals`), where the deleting task looks it up. No XCom is trusted, because users who may
    start a run may also write XComs.

    The approver must not be the requester, unless `CALVE_SELF_APPROVAL` is `true` on the workers.

    Reject, or no answer for `PATIENCE`, skips all later tasks: the run succeeds, and nothing is changed.

    Args:
        ask: Returns the question.

    Returns:
        `approved_by` and `approved_at`, for information only.

    Raises:
        AirflowSkipException: Nothing is deleted.
        AirflowFailException: The task asked another question before, which Airflow would still show; or the approver
            is the requester.
    """

    # The template fields of `ApprovalOperator` would render the question.
    template_fields: Sequence[str] = ()

    def __init__(self, *, ask: Ask, **kwargs: Any) -> None:
        super().__init__(
            subject="", defaults="Reject", response_timeout=PATIENCE, ignore_downstream_trigger_rules=True, **kwargs
        )
        self.ask = ask

    def execute(self, context: Context) -> None:
        """Ask for the approval and wait for the answer."""
        with open_catalog() as catalog:
            question = self.ask(catalog, context)
        if question is None:
            raise AirflowSkipException("nothing is deleted, so no approval is needed")
        # The digest distinguishes questions with the same wording.
        self.subject, self.body = question.subject, f"{question.body}\n\nDigest `{key_of(*question.keys)[:16]}`"
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            from catalog.settings.notify_rules import NotifyEvent

            self._refuse_another_question(context)
            count(Metric.APPROVALS_ASKED, table=question.table)
            notify(context, NotifyEvent.APPROVAL, question.table, self.subject, body=self.body)
            # The answer approves these keys: by then, the task might delete something else.
            waiting.kwargs = {"keys": list(question.keys), "table": question.table}
            raise

    def execute_complete(
        self, context: Context, event: dict[str, Any], keys: Sequence[str] = (), table: str | None = None
    ) -> dict[str, Any]:
        """Record the approval, or skip the later tasks."""
        count(Metric.APPROVALS_ANSWERED, table=table)
        answer = super().execute_complete(context, event)
        user = answer["responded_by_user"]
        _refuse_own_approval(context, user)
        approved_by = user and user["name"]
        with open_catalog() as catalog:
            catalog.approvals.record(operation_of(context), keys, approved_by)
        return {"approved_by": approved_by, "approved_at": answer["responded_at"].isoformat()}

    def _refuse_another_question(self, context: Context) -> None:
        """Fail if Airflow shows another question: for a cleared task, it keeps the first one."""
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        payload = CreateHITLDetailPayload(
            ti_id=context["task_instance"].id,
            options=self.options,
            subject=self.subject,
            body=self.body,
            params={},
            assigned_users=[],
        )
        shown = SUPERVISOR_COMMS.send(payload)
        if not isinstance(shown, HITLDetailRequestResult) or (shown.subject, shown.body) != (self.subject, self.body):
            raise AirflowFailException(
                "this run asked about another deletion before, and Airflow still shows that question; start the DAG "
                "again with the same form"
            ) from None


def _refuse_own_approval(context: Context, user: Mapping[str, Any] | None) -> None:
    if (os.environ.get(SELF_APPROVAL) or "").lower() == "true":
        return
    requester = context["dag_run"].triggering_user_name
    if user is None or (requester is not None and requester in (user["name"], user["id"])):
        raise AirflowFailException(
            f"{requester or 'an unknown user'} requested and approved this, but another person must approve it; "
            f"nothing was changed. Start the DAG again and have another person approve it, or set "
            f"{SELF_APPROVAL}=true on the workers"
        )
