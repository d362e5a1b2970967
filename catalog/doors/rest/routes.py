"""The requests of the protocol: method, path, what answers them, and the role that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from catalog.doors.rest import namespaces, tables, views
from catalog.doors.rest.asking import Answer, Asking
from catalog.doors.serving.access import Role


@dataclass(frozen=True)
class Route:
    """A request of the protocol.

    Attributes:
        path: In the catalog, with `{namespace}` and `{name}`.
    """

    method: str
    path: str
    handler: Callable[[Asking], Answer]
    role: Role

    @property
    def is_view(self) -> bool:
        """Whether it is about views."""
        return self.handler.__module__ == views.__name__

    @property
    def is_change(self) -> bool:
        """Whether it changes something, so that an idempotency key counts."""
        return self.method in ("POST", "DELETE") and self.handler is not tables.report_metrics

    @property
    def endpoint(self) -> str:
        """The request as `/v1/config` lists it."""
        name = "{view}" if self.is_view else "{table}"
        return f"{self.method} /v1/{{prefix}}{self.path.replace('{name}', name)}"


_NAMESPACE = "/namespaces/{namespace}"
_TABLE, _VIEW = f"{_NAMESPACE}/tables/{{name}}", f"{_NAMESPACE}/views/{{name}}"

ROUTES = (
    Route("GET", "/namespaces", namespaces.list_namespaces, Role.READER),
    Route("POST", "/namespaces", namespaces.create_namespace, Role.OWNER),
    Route("GET", _NAMESPACE, namespaces.load_namespace, Role.READER),
    Route("HEAD", _NAMESPACE, namespaces.has_namespace, Role.READER),
    Route("DELETE", _NAMESPACE, namespaces.drop_namespace, Role.OWNER),
    Route("POST", f"{_NAMESPACE}/properties", namespaces.change_namespace, Role.OWNER),
    Route("GET", f"{_NAMESPACE}/tables", tables.list_tables, Role.READER),
    Route("POST", f"{_NAMESPACE}/tables", tables.create_table, Role.OWNER),
    Route("POST", f"{_NAMESPACE}/register", tables.register_table, Role.OWNER),
    Route("GET", _TABLE, tables.load_table, Role.READER),
    Route("HEAD", _TABLE, tables.has_table, Role.READER),
    Route("POST", _TABLE, tables.commit_table, Role.WRITER),
    Route("DELETE", _TABLE, tables.drop_table, Role.OWNER),
    Route("POST", f"{_TABLE}/metrics", tables.report_metrics, Role.READER),
    Route("POST", "/tables/rename", tables.rename_table, Role.OWNER),
    Route("POST", "/transactions/commit", tables.commit_transaction, Role.WRITER),
    Route("GET", f"{_NAMESPACE}/views", views.list_views, Role.READER),
    Route("POST", f"{_NAMESPACE}/views", views.create_view, Role.OWNER),
    Route("POST", f"{_NAMESPACE}/register-view", views.register_view, Role.OWNER),
    Route("GET", _VIEW, views.load_view, Role.READER),
    Route("HEAD", _VIEW, views.has_view, Role.READER),
    Route("POST", _VIEW, views.replace_view, Role.OWNER),
    Route("DELETE", _VIEW, views.drop_view, Role.OWNER),
    Route("POST", "/views/rename", views.rename_view, Role.OWNER),
)
