"""The application of the pages: its routes, its files and its errors."""

from __future__ import annotations

import logging
from importlib.resources import as_file

from airflow.api_fastapi.app import get_auth_manager
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import URL
from starlette.exceptions import HTTPException

from calve_airflow.pages import (
    approvals,
    explain,
    migrations,
    operations,
    overview,
    quality,
    running,
    studio,
    table_files,
    table_partitions,
    table_picture,
    table_quality,
    tables,
)
from calve_airflow.pages.access import READERS
from calve_airflow.pages.open_catalog import open_catalog
from calve_airflow.pages.rendering import STATIC, is_part, render
from calve_airflow.pages.request_limits import WORK_SECONDS, BodyLimits, RequestLimits, was_interrupted
from catalog.errors import CatalogError, CatalogRefusedError, CatalogUnavailableError, NotFoundError

log = logging.getLogger(__name__)

_UNREACHABLE = "The reason is in the log of Airflow's API server. Load this page again when the catalog answers."

ROUTERS = (
    overview.router,
    tables.router,
    table_partitions.router,
    table_picture.router,
    table_files.router,
    table_quality.router,
    explain.router,
    operations.router,
    approvals.router,
    migrations.router,
    studio.router,
    quality.router,
    running.router,
)
"""The routes of all pages."""


def create_application() -> FastAPI:
    """Return the application, with access checked for all its routes but the scripts and styles."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    guarded = APIRouter(dependencies=[*READERS, Depends(RequestLimits().work, scope="function")])
    for router in ROUTERS:
        guarded.include_router(router)
    app.include_router(guarded)
    with as_file(STATIC) as folder:
        app.mount("/static", StaticFiles(directory=folder))
    app.add_middleware(BodyLimits)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(CatalogError, _failed)
    app.add_exception_handler(Exception, _broken)
    return app


def read_ahead() -> None:
    """Open the catalog, and measure its tables: almost every page needs both."""
    try:
        overview.table_sizes(open_catalog())
    except CatalogError as error:
        # The first page shows it, or finds it mended.
        log.warning("The pages cannot read the catalog: %s", error)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 401 and not is_part(request) and "text/html" in request.headers.get("accept", ""):
        # Without the host: behind a proxy, the browser knows another one than the request names.
        page = URL(path=request.url.path, query=request.url.query)
        login = get_auth_manager().get_url_login(next_url=str(page))
        return RedirectResponse(login, status_code=303)
    titles = {401: "Not logged in", 403: "Not allowed", 404: "Not found", 405: "Not allowed", 503: "Too many requests"}
    return _error(request, error.status_code, titles.get(error.status_code, "Not possible"), str(error.detail))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, problem['loc'][1:]))}: {problem['msg']}" for problem in error.errors()]
    return _error(request, 422, "Not possible", "; ".join(problems))


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, NotFoundError):
        return _error(request, 404, "Not found", str(error))
    if was_interrupted(request):
        text = f"The request took longer than {WORK_SECONDS:.0f} seconds and was ended; narrow its filter."
        return _error(request, 503, "The request took too long", text)
    if isinstance(error, CatalogRefusedError):
        return await _broken(request, error)
    if isinstance(error, CatalogUnavailableError):
        # Viewers do not learn the database's host and user, which the message has.
        log.warning("The page %s cannot read the catalog: %s", request.url.path, error)
        return _error(request, 503, "The catalog cannot be reached", _UNREACHABLE)
    return _error(request, 400, "Not possible", str(error))


async def _broken(request: Request, error: Exception) -> Response:
    log.exception("The page %s failed", request.url.path, exc_info=error)
    return _error(request, 500, "This page failed", "The reason is in the log of Airflow's API server.")


def _error(request: Request, status: int, title: str, message: str) -> Response:
    template = "error_part.html" if is_part(request) else "error.html"
    return render(request, template, status=status, title=title, message=message, active=None)
