"""Spark as another engine: sessions with Iceberg's JDBC catalog on the catalog's database, and with the REST door."""

from __future__ import annotations

from pyspark.sql import SparkSession
from sqlalchemy import make_url

from catalog.iceberg.jdbc import catalog_settings

_DRIVERS = ("org.sqlite.JDBC", "org.postgresql.Driver")


def engine_session(spark: SparkSession, url: str) -> SparkSession:
    """Return a session of the same Spark that has the Iceberg catalog `calve`, and nothing of Calve."""
    session = spark.newSession()
    for name in _DRIVERS:
        spark._jvm.org.apache.spark.util.Utils.classForName(name, True, False)  # type: ignore[union-attr]
    for name, value in catalog_settings(make_url(url)).items():
        session.conf.set(name, value)
    # A cached table would not show Calve's commits for 30 seconds.
    session.conf.set("spark.sql.catalog.calve.cache-enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def rest_session(spark: SparkSession, address: str) -> SparkSession:
    """Return a session of the same Spark that has the Iceberg catalog `lake`, Calve's REST door."""
    session = spark.newSession()
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": address,
        ".cache-enabled": "false",
    }.items():
        session.conf.set(f"spark.sql.catalog.lake{name}", value)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
