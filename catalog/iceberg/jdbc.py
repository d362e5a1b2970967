"""Settings of Iceberg's JDBC catalog `calve`, with which JVM engines access the catalog's database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL

from catalog.settings.environment import default_warehouse, package_settings, state_folder
from catalog.settings.spark_settings import properties, with_storage
from catalog.storage.urls import password_of

CATALOG = "calve"

EXTENSIONS = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
"""Spark's setting for Iceberg's SQL statements; it must be set before Spark starts."""

_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options that have the same name in libpq and in PostgreSQL's JDBC driver."""


def jdbc_settings(url: URL) -> dict[str, str]:
    """Return the properties of Iceberg's catalog for a database; they may contain a password.

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
    if (password := password_of(url)) is not None:
        settings["jdbc.password"] = password
    return settings


def catalog_settings(url: URL) -> dict[str, str]:
    """Return the settings that define the catalog in a Spark session; they may contain a password."""
    name = f"spark.sql.catalog.{CATALOG}"
    # Iceberg requires one, even if it creates no table.
    warehouse = default_warehouse() or str(state_folder() / "spark-warehouse")
    settings = {**jdbc_settings(url), "warehouse": warehouse}
    return {
        name: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{name}.{key}": value for key, value in settings.items()},
    }


def spark_conf(url: URL) -> str:
    """Return all settings with which Spark reads and writes the Iceberg tables, as a properties file.

    Source: Spark's `--properties-file`, which has the format of `java.util.Properties`.
    """
    packages = package_settings(database=url.get_backend_name())
    settings = with_storage({**packages, **EXTENSIONS, **catalog_settings(url)})
    return properties(settings)
