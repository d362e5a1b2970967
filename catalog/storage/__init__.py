"""The catalog's SQL database. Only this package, and the modules that use its tables, execute SQL."""

from catalog.storage.engine import Storage

__all__ = ["Storage"]
