"""Settings with which Spark reads and writes the storage in use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from catalog.files import object_stores
from catalog.settings.environment import spark_packages, state_folder
from catalog.settings.places import allowed_locations

_PACKAGES = "spark.jars.packages"


def with_storage(conf: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings together with those of the storage in use; they contain no credentials.

    S3 is in use if the warehouse, another allowed folder or the source of a listed table is there, or if the
    environment names an endpoint. Its packages are added, unless `CALVE_SPARK_PACKAGES` has the complete list.

    Raises:
        InvalidConfigurationError: The endpoint in the environment is no URL of a server.
    """
    if not (object_stores.endpoint() or any(map(object_stores.is_on_s3, allowed_locations()))):
        return dict(conf)
    settings = {**object_stores.spark_settings(), **conf}
    known = [name for name in conf.get(_PACKAGES, "").split(",") if name]
    more = spark_packages() if os.environ.get("CALVE_SPARK_PACKAGES") else object_stores.S3_PACKAGES
    if packages := list(dict.fromkeys([*known, *more])):
        settings[_PACKAGES] = ",".join(packages)
    return settings


def session_defaults() -> dict[str, str]:
    """Return the settings of submitted jobs and of local sessions alike, which others may override."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(state_folder() / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Else PySpark sends the JVM, with each function of a column, the line of Python that calls it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


def properties(settings: Mapping[str, str]) -> str:
    """Return settings as the text of a file for Spark's `--properties-file`, whose format is `java.util.Properties`."""
    return "".join(f"{name} {_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text.startswith((" ", "\t", "\f")) else text
