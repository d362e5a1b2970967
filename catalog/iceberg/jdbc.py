"""The catalog's database as engines on the JVM reach it: Iceberg's JDBC catalog of the name `calve`."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL

CATALOG = "calve"

_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""What libpq and the JDBC driver of PostgreSQL call by one name."""


def jdbc_settings(url: URL) -> dict[str, str]:
    """Return the properties of the catalog for a database; they may contain a password.

    Source: Iceberg's `JdbcCatalog`; PyIceberg's `SqlCatalog` writes the tables of its schema version V1.
    """
    settings = {"type": "jdbc", "jdbc.schema-version": "V1", "init-catalog-tables": "false"}
    if url.get_backend_name() == "sqlite":
        return {**settings, "uri": f"jdbc:sqlite:{Path(url.database or '').expanduser().absolute()}"}
    host = url.host or "localhost"
    host = f"[{host}]" if ":" in host else host
    options = "&".join(f"{name}={value}" for name, value in url.query.items() if name in _OPTIONS)
    settings["uri"] = f"jdbc:postgresql://{host}:{url.port or 5432}/{url.database}" + (f"?{options}" if options else "")
    if url.username is not None:
        settings["jdbc.user"] = url.username
    if url.password is not None:
        settings["jdbc.password"] = str(url.password)
    return settings
