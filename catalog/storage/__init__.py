"""The SQL database below the catalog. Only this package and the modules it serves speak SQL."""

from catalog.storage.engine import Storage

__all__ = ["Storage"]
