"""Calls of Glue's operations, and what operations need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from catalog.catalog import Catalog
from catalog.doors.entries import Entries
from catalog.doors.glue.builds import IndexBuilds
from catalog.doors.glue.failures import not_found
from catalog.doors.serving.access import Client, Role
from catalog.doors.serving.metrics import Metrics

Members: TypeAlias = Mapping[str, Any]
"""The members of a request (`catalog.doors.glue.shapes.read_request`)."""

Answer: TypeAlias = dict[str, Any] | str
"""The members of an answer; or its JSON, if an operation has written it."""


@dataclass(frozen=True)
class Door:
    """The catalog and the shared state that all operations use.

    Attributes:
        catalog_id: The id of the catalog, which Glue's clients expect to be the number of an account.
        latest: The latest tables of searches for partitions (`catalog.doors.glue.operations.partitions`).
    """

    catalog: Catalog
    entries: Entries
    builds: IndexBuilds
    metrics: Metrics
    catalog_id: str
    latest: dict[tuple[str, str], Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A call of an operation by a client."""

    door: Door
    client: Client
    operation: str
    members: Members

    def require_catalog(self) -> None:
        """Refuse a call for another catalog.

        Raises:
            GlueError: It names one.
        """
        asked = self.members.get("CatalogId", self.door.catalog_id)
        if asked != self.door.catalog_id:
            raise not_found(f"Catalog {asked} not found; this is catalog {self.door.catalog_id}.")


@dataclass(frozen=True)
class Operation:
    """An operation of Glue.

    Attributes:
        run: Carries it out; a `CatalogError` that it raises becomes Glue's error.
        role: The least role that a client needs.
    """

    run: Callable[[Call], Answer]
    role: Role
