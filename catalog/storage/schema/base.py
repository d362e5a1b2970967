"""Metadata, ids and options that all SQL tables share."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Integer, MetaData, text

from catalog.storage.declarations import Declaration

BigId = BigInteger().with_variant(Integer, "sqlite")
"""SQLite generates row ids only for INTEGER columns."""

NEVER_REUSED = {"sqlite_autoincrement": True}
"""Without this, SQLite reuses the highest id of deleted rows, which PostgreSQL's sequences never do.

Resumed work must find its own row by such an id, or none.
"""


def only_rows(condition: str) -> dict[str, Any]:
    """Return the arguments of a partial index."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


class Base(Declaration):
    """Common metadata, with the same constraint names on every database."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
