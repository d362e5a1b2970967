"""The front doors that `calve serve` can open."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.doors.serving.http_server import http_door
from catalog.doors.serving.listening import Address
from catalog.doors.serving.supervisor import Door


def doors(addresses: Mapping[str, str | None]) -> list[Door]:
    """Return the doors with an address.

    Args:
        addresses: `hms`, `glue`, `rest` and `metrics` → `[HOST:]PORT`, or None.

    Raises:
        InvalidConfigurationError: An address is invalid.
    """
    return [
        Door(name, title, Address.parse(text), prepare, scheme)
        for name, (title, prepare, scheme) in _DOORS.items()
        if (text := addresses.get(name)) is not None
    ]


_DOORS = {
    "metrics": ("metrics", http_door("metrics", None), "http"),
}
