"""The quality of a table: its checks with their trend, and the pages of Data Docs that they wrote."""

from __future__ import annotations

import mimetypes

from fastapi import APIRouter, HTTPException, Request, Response

from calve_airflow.pages.access import User
from calve_airflow.pages.address_fields import Id
from calve_airflow.pages.open_catalog import OpenCatalog
from calve_airflow.pages.table_pages import render_table
from catalog.errors import PageNotFoundError
from catalog.loading.quality_pages import QualityPages
from catalog.loading.quality_results import QualityCheck
from catalog.settings.environment import quality_pages

router = APIRouter()

_TREND = 60
_PAGE = 30

# Values of the data are in a page, so it runs no script; its styles are files beside it.
_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)


@router.get("/tables/{name}/quality")
def quality(
    request: Request, catalog: OpenCatalog, user: User, name: str, before_ms: Id | None = None, report: Id = 0
) -> Response:
    """Show the checks of a table, newest first, and the report of one of them."""
    table = catalog.get_table(name)
    history = catalog.quality.history(table.full_name, limit=max(_TREND, _PAGE + 1), before_ms=before_ms)
    pages = QualityPages(quality_pages())
    shown = history[:_PAGE]
    names = {check.operation_number: check.page and pages.name_of(check.page) for check in shown}
    return render_table(
        request,
        user,
        catalog,
        table,
        "quality",
        "table_quality.html",
        trend=_trend(history[:_TREND]),
        checks=shown,
        names=names,
        report=report,
        next_before_ms=shown[-1].checked_at_ms if len(history) > _PAGE else None,
    )


def _trend(newest_first: list[QualityCheck]) -> list[tuple[QualityCheck, float]]:
    """Return checks, oldest first, each with the share of its partitions that passed."""
    return [(check, check.passed / check.checked) for check in reversed(newest_first)]


@router.get("/quality/pages/{path:path}")
def page(path: str) -> Response:
    """Return a page of Data Docs, or a file that such pages load.

    Raises:
        HTTPException: 404; it does not exist, or was removed after its time.
    """
    try:
        content = QualityPages(quality_pages()).read(path)
    except PageNotFoundError as error:
        raise HTTPException(404, str(error)) from error
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return Response(
        content, media_type=kind, headers={"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
    )
