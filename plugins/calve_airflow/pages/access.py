"""Who may see the pages, and what their buttons may do.

Airflow gives mounted applications no protection of their own (apache/airflow issue 72655). The pages ask its
authentication manager for each request: reading them needs what Airflow's own list of plugins needs, and each action
the access to the DAG that performs it.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_view
from fastapi import Depends, HTTPException, Request

_READING = ("GET", "HEAD", "OPTIONS")


def same_origin(request: Request) -> None:
    """Refuse a change that another site asks for with the cookie of a person who is logged in.

    Browsers say which site asks in `Sec-Fetch-Site`, also where a proxy changes the host; over HTTP to other hosts than
    this one, they only send the origin.

    Raises:
        HTTPException: 403; the request's origin is not this server.
    """
    # No other site can send a bearer token; a browser adds the password of a proxy to any site's request.
    is_of_program = request.headers.get("authorization", "").lower().startswith("bearer ")
    if request.method in _READING or is_of_program:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    is_same = origin is not None and _host_of(origin) == request.headers.get("host")
    if not (site == "same-origin" if site is not None else is_same):
        raise HTTPException(403, "the request comes from another site; use the buttons of Calve's pages")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def storable_address(request: Request) -> None:
    """Refuse an address with a character that no database stores, before Airflow's or the catalog's is asked.

    Raises:
        HTTPException: 422; the address has U+0000.
    """
    if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
        raise HTTPException(422, "the address has the character U+0000, which no name has; remove it")


READERS = [
    Depends(get_user),
    Depends(requires_access_view(AccessView.PLUGINS)),
    Depends(same_origin),
    Depends(storable_address),
]
"""The dependencies of all pages: a user who is logged in and may see plugins."""

User = Annotated[BaseUser, Depends(get_user)]
"""The user of a request."""


def _may(user: BaseUser, method: Literal["GET", "POST", "PUT"], dag_id: str, entity: DagAccessEntity | None) -> bool:
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=entity, details=DagDetails(id=dag_id), user=user
    )


def may_start(user: BaseUser, dag_id: str) -> bool:
    """Return whether a user may start runs of a DAG."""
    return _may(user, "POST", dag_id, DagAccessEntity.RUN)


def may_answer(user: BaseUser, dag_id: str) -> bool:
    """Return whether a user may answer the questions of a DAG's runs, such as approvals."""
    return _may(user, "PUT", dag_id, DagAccessEntity.HITL_DETAIL)


def may_stop(user: BaseUser, dag_id: str) -> bool:
    """Return whether a user may stop runs of a DAG, which in Airflow is a change of the run's state."""
    return _may(user, "PUT", dag_id, DagAccessEntity.RUN)


def may_read_logs(user: BaseUser, dag_id: str) -> bool:
    """Return whether a user may read the logs of a DAG's tasks."""
    return _may(user, "GET", dag_id, DagAccessEntity.TASK_LOGS)


def may_read_runs(user: BaseUser, dag_id: str) -> bool:
    """Return whether a user may read the runs of a DAG."""
    return _may(user, "GET", dag_id, DagAccessEntity.RUN)


def require_read(user: BaseUser, dag_id: str) -> None:
    """Refuse what is for those who may see a DAG.

    Raises:
        HTTPException: 403; the user may not.
    """
    if not _may(user, "GET", dag_id, None):
        raise HTTPException(403, f"you may not see the DAG {dag_id}; ask an administrator of Airflow for it")


def require_start(user: BaseUser, dag_id: str) -> None:
    """Refuse an action that is for those who may start runs of a DAG.

    Raises:
        HTTPException: 403; the user may not.
    """
    if not may_start(user, dag_id):
        raise HTTPException(403, f"you may not start runs of the DAG {dag_id}; ask an administrator of Airflow for it")
