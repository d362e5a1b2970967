"""Health of a server: whether its catalog can be reached and has the right schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalog.catalog import Catalog
from catalog.errors import CatalogError
from catalog.storage.upgrade import check_revision, newest_revision


@dataclass(frozen=True)
class Health:
    """The health of a server.

    Attributes:
        problem: The name of the error for which the catalog cannot be used; None if it can. Its message may name the
            database, and is in the log only.
    """

    problem: str | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether requests can be answered."""
        return self.problem is None

    def as_json(self) -> dict[str, Any]:
        """Return the answer of `/health`."""
        if self.problem is None:
            return {"status": "ok", "schema": newest_revision()}
        return {"status": "unavailable", "problem": self.problem}


def health(catalog: Catalog) -> Health:
    """Check a catalog with one short look-up."""
    try:
        check_revision(catalog.storage)
    except CatalogError as error:
        return Health(type(error).__name__)
    return Health()
