"""Settings of a Spark session whose tables come through the front doors (`calve serve`)."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from catalog.errors import InvalidRequestError
from catalog.iceberg.jdbc import CATALOG, EXTENSIONS
from catalog.settings.environment import default_warehouse, package_settings
from catalog.settings.spark_settings import properties, with_storage

DEFAULT_HMS, DEFAULT_REST = "127.0.0.1:9083", "http://127.0.0.1:8181"


_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[\w.-]+):)?(?P<port>\d{1,5})", re.ASCII)
_CREDENTIALS = ("spark.sql.catalog.spark_catalog.credential", f"spark.sql.catalog.{CATALOG}.credential")
_ABOUT_KEYS = """\
# CALVE_DOOR_KEYS is set: replace <access key> and <secret key> by those of a client in that file. Spark's client for
# the Hive Metastore knows no keys; it needs a calve serve without CALVE_DOOR_KEYS on 127.0.0.1 of the driver's machine.
"""


def door_settings(hms: str = DEFAULT_HMS, rest: str = DEFAULT_REST) -> dict[str, str]:
    """Return the settings of Spark's own catalog and of one named `calve`; they contain no credentials.

    Spark's own catalog asks the REST door first, which knows the Iceberg tables, and for all others its Hive client.

    Args:
        hms: `host:port` of the Hive Metastore door.
        rest: The URL of the Iceberg REST door.

    Source: Iceberg's `SparkSessionCatalog` and `SparkCatalog`.
    """
    iceberg = {"type": "rest", "uri": rest, "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    catalogs = {
        "spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
    }
    settings = {
        **EXTENSIONS,
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": f"thrift://{hms}",
        # Spark creates tables without LOCATION in their database's folder, which the metastore tells.
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
    }
    for name, implementation in catalogs.items():
        settings[f"spark.sql.catalog.{name}"] = implementation
        settings |= {f"spark.sql.catalog.{name}.{key}": value for key, value in iceberg.items()}
    if warehouse := default_warehouse():
        settings["spark.sql.warehouse.dir"] = warehouse
    return settings


def door_conf(hms: str = DEFAULT_HMS, rest: str = DEFAULT_REST) -> str:
    """Return all settings of such a session, as a properties file for Spark's `--properties-file`.

    With `CALVE_DOOR_KEYS`, they have a placeholder for the keys of a client.

    Args:
        hms: The Hive Metastore door, as `[thrift://][host:]port`.
        rest: The Iceberg REST door, as a URL or as `[host:]port`, which is completed to a URL.

    Raises:
        InvalidRequestError: One of them is neither.
    """
    hms_address, rest_url = _address(hms.removeprefix("thrift://")), _rest_url(rest)
    if hms_address is None:
        raise InvalidRequestError(f"--hms is {hms!r}, expected an address such as {DEFAULT_HMS}")
    if rest_url is None:
        raise InvalidRequestError(f"--rest is {rest!r}, expected a URL such as {DEFAULT_REST}")
    settings = with_storage({**package_settings(), **door_settings(hms_address, rest_url)})
    if not os.environ.get("CALVE_DOOR_KEYS"):
        return properties(settings)
    return _ABOUT_KEYS + properties(settings | dict.fromkeys(_CREDENTIALS, "<access key>:<secret key>"))


def _address(text: str) -> str | None:
    """Return `host:port` of an address with or without a host; None if it is none."""
    match = _ADDRESS.fullmatch(text.strip())
    return f"{match['host'] or '127.0.0.1'}:{match['port']}" if match and int(match["port"]) <= 65_535 else None


def _rest_url(text: str) -> str | None:
    """Return the URL of an address or a URL; None if it is neither, as without a host or with a password."""
    if address := _address(text):
        return f"http://{address}"
    try:
        url = urlsplit(text.strip())
        is_good = url.scheme in ("http", "https") and url.hostname and url.port != 0 and url.username is None
    except ValueError:
        return None
    return text.strip() if is_good and not re.search(r"\s|[?#]", text.strip()) else None
