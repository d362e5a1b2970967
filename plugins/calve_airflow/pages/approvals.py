"""The page of approvals: the questions of runs that would delete or switch something, and their answers."""

from __future__ import annotations

import os

from fastapi import APIRouter, Request, Response

from calve_airflow.operators.approval import SELF_APPROVAL
from calve_airflow.pages.access import User, may_answer
from calve_airflow.pages.airflow_records import answered_questions, waiting_questions
from calve_airflow.pages.markdown import as_markup
from calve_airflow.pages.rendering import is_part, render

router = APIRouter()


@router.get("/approvals")
def approvals(request: Request, user: User) -> Response:
    """List the questions that wait for an answer, and the latest answers.

    Those who may answer do so through Airflow's API. The task refuses its requester's own approval.
    """
    allows_own = (os.environ.get(SELF_APPROVAL) or "").lower() == "true"
    waiting = waiting_questions(user)
    return render(
        request,
        "approvals_part.html" if is_part(request) else "approvals.html",
        active="approvals",
        waiting=[
            (
                question,
                as_markup(question.body),
                may_answer(user, question.dag_id),
                question.is_asked_by(user) and not allows_own,
            )
            for question in waiting
        ],
        answered=[(question, as_markup(question.body)) for question in answered_questions(user)],
        self_approval=SELF_APPROVAL,
    )
