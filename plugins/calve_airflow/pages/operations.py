"""The pages of operations: the list, and one with its progress, plan, steps and logs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Request, Response
from markupsafe import Markup
from pydantic import BeforeValidator

from calve_airflow.pages.access import User, may_read_logs, may_read_runs, may_start, may_stop
from calve_airflow.pages.airflow_records import Question, Run, answered_questions, find_run, waiting_questions
from calve_airflow.pages.fields import Number
from calve_airflow.pages.markdown import as_markup
from calve_airflow.pages.open_catalog import OpenCatalog, Remembered
from calve_airflow.pages.plans import change_of, progress_of, shown
from calve_airflow.pages.rendering import STOP_POLLING, is_part, or_none, render
from calve_airflow.pages.table_actions import form_query
from calve_airflow.submitting.attempts import recorded_process
from catalog.operations.records import DRY_RUN, UNFINISHED, Operation, OperationKind, OperationState
from catalog.settings.environment import spark_history

router = APIRouter()

CANCELLED = "CANCELLED"
"""Failure code of an operation that a person has cancelled, as by `calve give-up`."""

_PAGE = 50
_LOG_BYTES = 64 * 1024
_MOST_OF_RUN = 200

_changes = Remembered(seconds=10)
"""Plans: a page that follows an operation asks for its plan every two seconds."""


@router.get("/operations")
def operations(
    request: Request,
    catalog: OpenCatalog,
    table: str = "",
    state: Annotated[OperationState | None, BeforeValidator(or_none)] = None,
    kind: Annotated[OperationKind | None, BeforeValidator(or_none)] = None,
    dag_id: str = "",
    before: Number | None = None,
) -> Response:
    """List the latest operations, of all DAGs or of one."""
    listed = catalog.operations.list(
        search=table.strip() or None,
        states=() if state is None else state.same_for_people,
        kinds=() if kind is None else (kind,),
        within=dag_id or None,
        before=before,
        # In the journal they have failed, on purpose.
        with_dry_runs=state is not OperationState.FAILED,
        limit=_PAGE + 1,
    )
    return render(
        request,
        "operations_part.html" if is_part(request) else "operations.html",
        active="operations",
        operations=listed[:_PAGE],
        next_before=listed[_PAGE - 1].number if len(listed) > _PAGE else None,
        table=table,
        state=state,
        kind=kind,
        dag_id=dag_id,
        states=[one for one in OperationState if one is one.same_for_people[0]],
        kinds=list(OperationKind),
    )


@router.get("/operation")
def operation(
    request: Request, catalog: OpenCatalog, user: User, id: str = "", dag_id: str = "", run_id: str = ""
) -> Response:
    """Show an operation, by its id or by its run in Airflow; several of a run as a list.

    Raises:
        HTTPException: 422; the address names neither.
    """
    # Ids of runs have no blanks, but most have a plus, which is one in an address that somebody wrote by hand.
    operation_id = id or f"{dag_id}/{run_id.replace(' ', '+')}"
    if not operation_id.strip("/"):
        raise HTTPException(422, "the address names no operation; give its id")
    listed = catalog.operations.list(within=operation_id, limit=_MOST_OF_RUN + 1)
    listed = [found for found in listed if not id or found.id == id] or listed
    found = listed[0] if len(listed) == 1 else None
    jobs = catalog.operations.jobs_of(found.id) if found else ()
    run, is_of_run = _run_of(user, operation_id), "/" in operation_id
    is_running = any(found.state in UNFINISHED for found in listed) or (run is not None and run.is_changing)
    dag = _dag_of(operation_id)
    change = None
    if found is not None:
        change = _changes.get((found.number, found.state), partial(change_of, catalog, found))
    return render(
        request,
        "operation_part.html" if is_part(request) else "operation.html",
        # The page asks again until nothing changes any more.
        status=200 if is_running or not is_part(request) else STOP_POLLING,
        active="operations",
        id=operation_id,
        operation=found,
        operations=listed[:_MOST_OF_RUN],
        jobs=jobs,
        spark_pages={job.step: job.spark_page(spark_history()) for job in jobs},
        progress=None if found is None else progress_of(found, jobs),
        change=change,
        details=() if found is None or not may_read_runs(user, dag) else _details(found),
        run=run,
        is_running=is_running,
        may_cancel=found is not None and found.state in UNFINISHED and may_stop(user, dag),
        has_logs=any(job.log_path for job in jobs) and may_read_logs(user, dag),
        waiting=_with_bodies(waiting_questions(user, operation_id)) if is_of_run else [],
        answered=_with_bodies(answered_questions(user, operation_id)) if is_of_run else [],
        real_form=_form_of_dry_run(user, run, listed),
    )


@router.get("/operation/log")
def log(request: Request, catalog: OpenCatalog, user: User, id: str, step: str) -> Response:
    """Show the end of the log of a step's latest attempt.

    Raises:
        HTTPException: 403; the user may not read the logs of the operation's DAG.
    """
    if not may_read_logs(user, _dag_of(id)):
        raise HTTPException(403, f"you may not read the logs of the DAG {_dag_of(id)}")
    job = catalog.operations.get_job(id, step)
    process = None if job is None or job.log_path is None else recorded_process(job.log_path)
    text = None if process is None else process.end_of_log(_LOG_BYTES)
    return render(request, "operation_log.html", job=job, text=text)


@router.post("/operation/cancel")
def cancel(catalog: OpenCatalog, user: User, id: str) -> Response:
    """Fail an unfinished operation, so that none of its jobs can commit.

    Raises:
        HTTPException: 403; the user may not stop runs of the operation's DAG.
    """
    if not may_stop(user, _dag_of(id)):
        raise HTTPException(403, f"you may not stop runs of the DAG {_dag_of(id)}; ask an administrator of Airflow")
    catalog.operations.fail(id, CANCELLED, f"cancelled by {user.get_name()} in Airflow's UI")
    return Response(status_code=204)


def _details(found: Operation) -> list[tuple[str, Any]]:
    """Return the request and the results of the steps, for those who may read the form of the run in Airflow."""
    results = ((f"Result of {step}", result) for step, result in found.report.items())
    return [(title, shown(found, values)) for title, values in (("Request", found.request), *results) if values]


def _with_bodies(questions: Sequence[Question]) -> list[tuple[Question, Markup]]:
    return [(question, as_markup(question.body)) for question in questions]


def _form_of_dry_run(user: User, run: Run | None, listed: Sequence[Operation]) -> dict[str, str] | None:
    """Return the query of the form that makes what a dry run has planned; None for other runs and users."""
    is_dry_run = any(found.failure_code == DRY_RUN for found in listed)
    if run is None or run.is_running or not is_dry_run or not may_start(user, run.dag_id):
        return None
    return form_query({**run.form, "dry_run": False})


def _dag_of(operation_id: str) -> str:
    """Return the DAG of an operation; for one of another caller, its id, which no DAG has."""
    return operation_id.partition("/")[0]


def _run_of(user: User, operation_id: str) -> Run | None:
    dag_id, *parts = operation_id.split("/", 2)
    return find_run(dag_id, parts[0]) if parts and may_read_runs(user, dag_id) else None
