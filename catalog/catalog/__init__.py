"""`Catalog`: the class that all front doors use.

Its methods are in the modules of this package, by their subjects. Most other modules are imported by the methods that
need them, because a command should import only what it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from catalog.catalog.databases import DatabaseMethods
from catalog.catalog.indexes import IndexMethods
from catalog.catalog.loads import LoadMethods
from catalog.catalog.partitions import PartitionMethods
from catalog.catalog.upkeep import UpkeepMethods
from catalog.settings.environment import default_warehouse
from catalog.settings.places import require_root
from catalog.storage import Storage
from catalog.storage.engine import catalog_url


class Catalog(UpkeepMethods, IndexMethods, LoadMethods, PartitionMethods, DatabaseMethods):
    """The shared catalog of tables, partitions and partition indexes.

    Table names are written `database.table`; the default database is `default`. Names are case-insensitive. An object
    is thread-safe.
    """

    @classmethod
    def open(cls, url: str | None = None, *, warehouse: str | None = None) -> Self:
        """Open the catalog of a database that has the schema of this version.

        Args:
            url: `postgresql://…` or `sqlite:///…`; by default `CALVE_CATALOG_URL`.
            warehouse: The folder for databases that have no location of their own; by default `CALVE_WAREHOUSE`.

        Raises:
            CatalogUnavailableError: No URL is given, the database cannot be reached, or its schema has another version.
            InvalidLocationError: The warehouse contains a password or options.
        """
        from catalog.storage.upgrade import check_revision

        return cls._opened(url, warehouse, check_revision)

    @classmethod
    def initialise(cls, url: str | None = None, *, warehouse: str | None = None) -> Self:
        """Create or upgrade the schema, and open the catalog; safe to repeat."""
        from catalog.storage.upgrade import upgrade

        return cls._opened(url, warehouse, upgrade)

    @classmethod
    def _opened(cls, url: str | None, warehouse: str | None, prepare: Callable[[Storage], None]) -> Self:
        if warehouse := warehouse or default_warehouse():
            require_root(warehouse, "CALVE_WAREHOUSE")
        storage = Storage(url or catalog_url())
        try:
            prepare(storage)
        except BaseException:
            storage.close()
            raise
        return cls(storage, warehouse)

    def close(self) -> None:
        """Close all connections."""
        self.storage.close()

    def __enter__(self) -> Self:
        """Return the catalog, to be closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()
