"""The description of Calve in Airflow's list of providers."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the description of this package, in the form of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "calve",
        "name": "Calve",
        "description": "Partitions of a data lake: loads, partition indexes, rebalances and migrations to Iceberg.",
        "versions": [version("calve")],
    }
