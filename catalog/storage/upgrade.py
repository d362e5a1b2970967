"""The schema's revisions: forward to the newest, back for those who must."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from catalog.errors import CatalogVersionError
from catalog.storage.engine import Storage
from catalog.storage.urls import shown_url

# Alembic is imported late: opening a catalog does not need it, and it takes as long as answering a statement.
if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION_TABLE = "calve_alembic_version"
# Any number that no other user of the same server is likely to have chosen.
_UPGRADE_LOCK = 6013_2026


def upgrade(storage: Storage, revision: str = "head") -> None:
    """Bring the schema to a revision; does nothing when it is there. Concurrent callers wait for each other."""
    from alembic import command

    with storage.migrate() as connection:
        _lock(connection)
        if inspect(connection).has_table(_VERSION_TABLE):
            refuse_newer(storage, connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}")))
        command.upgrade(_config(connection), revision)


def downgrade(storage: Storage, revision: str) -> None:
    """Take the schema back to a revision, or to nothing by `base`. What only newer revisions hold is lost."""
    from alembic import command

    with storage.migrate() as connection:
        _lock(connection)
        command.downgrade(_config(connection), revision)


def check_revision(storage: Storage) -> None:
    """Make sure that the schema is the one this version of Calve was written for.

    Raises:
        CatalogUnavailableError: The schema is missing.
        CatalogVersionError: It is older or newer.
    """
    expected = newest_revision()
    with storage.read() as connection:
        found = connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}"))
    refuse_newer(storage, found)
    if found != expected:
        raise CatalogVersionError(
            f"the catalog {shown_url(storage.url)} has schema revision {found}, this version of Calve needs "
            f"{expected}; run `calve init`"
        )


def refuse_newer(storage: Storage, found: str | None) -> None:
    """Make sure that a schema was not made by a newer version of Calve.

    Raises:
        CatalogVersionError: It was.
    """
    expected = newest_revision()
    if found is not None and found > expected:
        raise CatalogVersionError(
            f"the catalog {shown_url(storage.url)} has schema revision {found}, made by a newer version of Calve; this "
            f"version knows {expected} at most. Upgrade Calve"
        )


def newest_revision() -> str:
    """Return the revision that this version of Calve needs; the names of their files begin with the revisions."""
    return max(path.name.split("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
