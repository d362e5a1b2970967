"""The pages of operations."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request, Response

from calve_airflow.pages.access import User
from calve_airflow.pages.airflow_records import waiting_questions
from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.rendering import is_part, render
from catalog.operations.records import UNFINISHED, OperationKind, OperationState

router = APIRouter()

_PAGE = 50


@router.get("/operations")
def operations(
    request: Request,
    catalog: OpenCatalog,
    table: str = "",
    state: OperationState | None = None,
    kind: OperationKind | None = None,
    before: int | None = None,
) -> Response:
    """List the latest operations."""
    listed = catalog.operations.list(
        table.strip() or None,
        states=() if state is None else (state,),
        kinds=() if kind is None else (kind,),
        before=before,
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
        states=list(OperationState),
        kinds=list(OperationKind),
    )


@router.get("/operation")
def operation(
    request: Request, catalog: OpenCatalog, user: User, id: str = "", dag_id: str = "", run_id: str = ""
) -> Response:
    """Show an operation, by its id or by its run in Airflow.

    Raises:
        HTTPException: 422; the address names neither.
    """
    operation_id = id or f"{dag_id}/{run_id}"
    if not operation_id.strip("/"):
        raise HTTPException(422, "the address names no operation; give its id")
    found = catalog.operations.find(operation_id)
    return render(
        request,
        "operation_part.html" if is_part(request) else "operation.html",
        active="operations",
        id=operation_id,
        operation=found,
        is_running=found is None or found.state in UNFINISHED,
        questions=waiting_questions(user, operation_id) if "/" in operation_id else [],
    )
