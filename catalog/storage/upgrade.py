"""Upgrades and downgrades of the database schema."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from catalog.errors import CatalogVersionError
from catalog.storage.engine import Storage
from catalog.storage.urls import shown_url

# Alembic is imported late: opening a catalog does not need it, and the import takes as long as a statement.
if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "calve_alembic_version"
# An arbitrary number that other users of the same server are unlikely to use.
_UPGRADE_LOCK = 6013_2026


def upgrade(storage: Storage, revision: str = "head") -> None:
    """Upgrade the schema to a revision, unless it has that already. Concurrent callers wait for each other."""
    from alembic import command

    storage.make_folder()
    with storage.migrate() as connection:
        _lock(connection)
        if inspect(connection).has_table(VERSION_TABLE):
            refuse_newer(storage, connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")))
        command.upgrade(_config(connection), revision)


def downgrade(storage: Storage, revision: str) -> None:
    """Downgrade the schema to a revision, or remove it with `base`. Data of newer revisions is lost."""
    from alembic import command

    with storage.migrate() as connection:
        _lock(connection)
        command.downgrade(_config(connection), revision)


def check_revision(storage: Storage) -> None:
    """Check that the schema has the revision of this version of Calve.

    Raises:
        CatalogUnavailableError: The database or its schema is missing.
        CatalogVersionError: It is older or newer.
    """
    expected = newest_revision()
    storage.require_file()
    with storage.read() as connection:
        revision = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    refuse_newer(storage, revision)
    if revision != expected:
        raise CatalogVersionError(
            f"the catalog {shown_url(storage.url)} has schema revision {revision}, this version of Calve needs "
            f"{expected}; run `calve init`"
        )


def read_revision(storage: Storage) -> str | None:
    """Return the schema's revision; None if the database or the schema does not exist.

    Raises:
        CatalogVersionError: A newer version of Calve created it.
        CatalogUnavailableError: The database cannot be reached.
    """
    if not storage.has_file():
        return None
    with storage.read() as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        revision = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    refuse_newer(storage, revision)
    return None if revision is None else str(revision)


def refuse_newer(storage: Storage, revision: str | None) -> None:
    """Check that the schema was not created by a newer version of Calve.

    Args:
        revision: The schema's revision; None when it has none.

    Raises:
        CatalogVersionError: It was.
    """
    expected = newest_revision()
    if revision is not None and revision > expected:
        raise CatalogVersionError(
            f"the catalog {shown_url(storage.url)} has schema revision {revision}, created by a newer version of "
            f"Calve; this version supports {expected} at most. Upgrade Calve"
        )


def newest_revision() -> str:
    """Return the revision that this version of Calve needs; the names of revision files start with it."""
    # In the driver of a job in cluster mode, the package is in a zip file.
    versions = files("catalog.storage").joinpath("migrations", "versions")
    return max(entry.name.split("_")[0] for entry in versions.iterdir() if entry.name[0].isdigit())


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
