"""Entries of metastores: databases, tables, partitions in the neutral form of Hive Metastore and Glue, without loss.

The front doors of both protocols translate between their own classes and these entries
(`catalog.metastores.types`), and the entries are stored as definitions of Calve, so that what comes in through one door
is a table in all others.
"""

from __future__ import annotations

from catalog.catalog import Catalog
from catalog.doors.entries.functions import FunctionMethods
from catalog.errors import InvalidConfigurationError
from catalog.model.identifiers import DEFAULT_DATABASE

__all__ = ["Entries"]


class Entries(FunctionMethods):
    """The entries of one catalog. An object is thread-safe.

    Names of databases, tables and columns are lower case; other strings come back as they were given.
    """

    def __init__(self, catalog: Catalog) -> None:
        """Set the catalog; create the database `default`, which clients expect, if there is a warehouse."""
        super().__init__(catalog)
        try:
            catalog.create_database(DEFAULT_DATABASE, if_not_exists=True)
        except InvalidConfigurationError:
            # Without a warehouse, each database is created with a location.
            return
