"""Suggestions for names of tables that do not exist."""

from __future__ import annotations

from catalog.catalog import Catalog
from catalog.errors import CatalogError, NotFoundError
from catalog.errors.base import did_you_mean

_SUGGESTED = 3
"""The maximum number of tables with similar names that are shown."""


def described(error: CatalogError) -> str:
    """Return the class and the message of an error; if a table does not exist, also similar names that do.

    These are looked up in the installation's catalog, so this is for errors that are shown to people.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, NotFoundError) and error.table and (similar := _similar_tables(error.table)):
        return f"{text}. Did you mean {' or '.join(similar)}?"
    return text


def _similar_tables(name: str) -> list[str]:
    """Return the first tables of the same name in other databases, or else of a similar name."""
    try:
        with Catalog.open() as catalog:
            names = [table.full_name for table in catalog.list_tables()]
    except CatalogError:
        return []
    database, _, bare = name.lower().rpartition(".")
    similar = [full for full in names if full.rpartition(".")[2] == bare]
    # A name without a database is that of a table in the database `default`, so those of others are compared, too.
    similar = similar or [full for full in names if did_you_mean(bare, [full.rpartition(".")[2]])]
    similar.sort(key=lambda full: full.rpartition(".")[0] != database)
    return similar[:_SUGGESTED]
