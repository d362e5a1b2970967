"""The mount of the pages in Airflow's API server.

Every component of Airflow imports its plugins, and only the API server shows pages: their application is imported when
the server has started, or at the first request.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/calve"
"""The path of the pages under Airflow's own."""

NAVIGATION_ROUTE = "calve"
NAVIGATION = f"/plugin/{NAVIGATION_ROUTE}{PREFIX}"
"""The path under which Airflow's UI shows the pages, opened from its navigation."""


class Pages:
    """An ASGI application that makes the one of the pages when it is first called."""

    def __init__(self) -> None:
        self._application: ASGIApp | None = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the pages."""
        # In a thread, because the import would let all requests to the server wait.
        if (application := self._application) is None:
            application = await asyncio.to_thread(self._made)
        await application(scope, receive, send)

    def prepare(self) -> None:
        """Make the application, and read what its first page needs."""
        self._made()
        from calve_airflow.pages.application import read_ahead

        read_ahead()

    def _made(self) -> ASGIApp:
        with self._lock:
            if self._application is None:
                from calve_airflow.pages.application import create_application

                self._application = create_application()
            return self._application


class Preparation:
    """A middleware of the API server that prepares the pages, in a thread, when the server starts.

    Only the middlewares of the whole server hear of its start.
    """

    def __init__(self, app: ASGIApp, pages: Pages) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] == "lifespan":
            threading.Thread(target=self._pages.prepare, name="calve-pages", daemon=True).start()
        await self._app(scope, receive, send)


def view(name: str, route: str, destination: str, path: str, **more: Any) -> dict[str, Any]:
    """Return a view that shows a page inside Airflow's UI.

    Args:
        name: Its title.
        route: The last part of its address in Airflow's UI; unique among all plugins.
        destination: `nav` for the navigation, or `dag`, `dag_run`, `task` or `task_instance` for a tab.
        path: The page, with placeholders of Airflow such as `{DAG_ID}`.
        more: Further fields of an external view.
    """
    return {"name": name, "href": f"{PREFIX}{path}", "destination": destination, "url_route": route, **more}
