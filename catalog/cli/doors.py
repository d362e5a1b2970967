"""The front doors that `calve serve` can open."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.doors.serving.context import Serving
from catalog.doors.serving.http import Application
from catalog.doors.serving.http_server import http_door
from catalog.doors.serving.listening import Address
from catalog.doors.serving.supervisor import Door
from catalog.doors.serving.worker import Prepare


def _hms() -> Prepare:
    from catalog.doors.hms.server import prepare

    return prepare


def _glue() -> Prepare:
    from catalog.doors.glue.application import application, error_body

    return http_door("glue", application, error_body)


def _rest() -> Prepare:
    from catalog.doors.rest.application import application

    def served(serving: Serving) -> Application:
        # Imported in the worker, because it starts threads, and now, because the first request would wait for it.
        import pyiceberg.catalog.sql
        import pyiceberg.io.pyarrow  # noqa: F401

        return application(serving.catalog, serving.access)

    return http_door("rest", served)


def _metrics() -> Prepare:
    return http_door("metrics", None)


_DOORS: Mapping[str, tuple[str, Callable[[], Prepare], str]] = {
    "hms": ("Hive Metastore", _hms, ""),
    "glue": ("Glue", _glue, "http"),
    "rest": ("Iceberg REST", _rest, "http"),
    "metrics": ("metrics", _metrics, "http"),
}
"""The title of each door, what imports it and returns its `Prepare`, and the scheme of its addresses."""


def doors(addresses: Mapping[str, str | None]) -> list[Door]:
    """Return the doors with an address.

    Args:
        addresses: `hms`, `glue`, `rest` and `metrics` → `[HOST:]PORT`, or None.

    Raises:
        InvalidConfigurationError: An address is invalid.
    """
    return [
        Door(name, title, Address.parse(text), imported(), scheme)
        for name, (title, imported, scheme) in _DOORS.items()
        if (text := addresses.get(name)) is not None
    ]
