"""Asking a person before something is deleted."""

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

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog import Catalog
    from catalog.operations.approvals import Approval

PATIENCE = timedelta(days=7)
"""No answer for so long is a Reject."""

SELF_APPROVAL = "CALVE_SELF_APPROVAL"
"""The environment variable that, set to `true`, lets one person ask for a deletion and approve it."""


@dataclass(frozen=True)
class Question:
    """The question that `ApproveDeletionOperator` asks.

    Attributes:
        body: Markdown.
        keys: One for each deletion that a task carries out by itself: a digest of what it will delete (`key_of`).
    """

    subject: str
    body: str
    keys: Sequence[str]


Ask: TypeAlias = "Callable[[Catalog, Context], Question | None]"
"""Returns what has to be approved before a run goes on; None when nothing is deleted."""


def asked_by(context: Context) -> str:
    """Return who started a run, as Markdown."""
    run = context["dag_run"]
    name = run.triggering_user_name
    return f"**{name}**" if name else f"the run `{run.run_id}`, which nobody started by hand"


def operation_of(context: Context) -> str:
    """Return the operation of a run, as Airflow itself knows it: users may write XComs and mapped arguments."""
    run = context["dag_run"]
    return f"{run.dag_id}/{run.run_id}"


def key_of(*parts: object) -> str:
    """Return a key that stands for just these things, such as a table and the ids of its partitions."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def code(text: str) -> str:
    """Return a text as Markdown that shows it as it is, in one line."""
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def find_approval(catalog: Catalog, context: Context, key: str) -> Approval | None:
    """Return the approval of a deletion of this run; None when nobody has approved it, or too long ago."""
    approval = catalog.approvals.find(operation_of(context), key)
    return None if approval is None or approval.is_expired else approval


def require_approval(catalog: Catalog, context: Context, key: str) -> Approval:
    """Return the approval of the deletion that the key stands for.

    Raises:
        AirflowFailException: Nobody has.
    """
    approval = find_approval(catalog, context, key)
    if approval is None:
        raise AirflowFailException(
            "nobody has approved just this deletion; nothing was changed. Start the DAG again with the same form, and "
            "let somebody approve it"
        )
    return approval


class ApproveDeletionOperator(FormOperator, ApprovalOperator):
    """Waits, without a worker slot, until a person approves a deletion; skipped where nothing is deleted.

    What is asked comes from the run's form and the catalog, and the answer goes to the catalog
    (`catalog.operations.approvals`), where the task that deletes looks for it. No XCom is trusted: who may start a run
    may write those, too.

    The person is not the one who asked for it, unless `CALVE_SELF_APPROVAL` is `true` on the workers.

    Reject, and no answer for `PATIENCE`, skip all tasks behind it: the run succeeds, and nothing is changed.

    Args:
        ask: Returns the question.

    Returns:
        `approved_by` and `approved_at`, for people.

    Raises:
        AirflowSkipException: Nothing is deleted.
        AirflowFailException: The task asked something else before, and Airflow would show that; or the one who
            approved is the one who asked.
    """

    # Airflow's own would render the question.
    template_fields: Sequence[str] = ()

    def __init__(self, *, ask: Ask, **kwargs: Any) -> None:
        super().__init__(
            subject="", defaults="Reject", response_timeout=PATIENCE, ignore_downstream_trigger_rules=True, **kwargs
        )
        self.ask = ask

    def execute(self, context: Context) -> None:
        """Ask, and wait."""
        with open_catalog() as catalog:
            asked = self.ask(catalog, context)
        if asked is None:
            raise AirflowSkipException("nothing is deleted, so nobody has to approve it")
        # Another deletion may read alike: the key tells them apart.
        self.subject, self.body = asked.subject, f"{asked.body}\n\nDeletion `{key_of(*asked.keys)[:16]}`"
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            self._refuse_another_question(context)
            # There may be something else to delete when the answer comes.
            waiting.kwargs = {"keys": list(asked.keys)}
            raise

    def execute_complete(self, context: Context, event: dict[str, Any], keys: Sequence[str] = ()) -> dict[str, Any]:
        """Record the approval, or skip the rest."""
        answer = super().execute_complete(context, event)
        user = answer["responded_by_user"]
        _refuse_own_approval(context, user)
        approved_by = user and user["name"]
        with open_catalog() as catalog:
            catalog.approvals.record(operation_of(context), keys, approved_by)
        return {"approved_by": approved_by, "approved_at": answer["responded_at"].isoformat()}

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
