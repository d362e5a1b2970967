"""Metrics that Spark observes while it processes rows."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation


def metrics(observation: Observation) -> dict[str, Any]:
    """Return the observed metrics; empty if Spark found that there are no rows and removed the observation.

    Spark does so before execution or between two stages (rule `AQEPropagateEmptyRelation`).
    """
    try:
        return observation.get
    except Py4JJavaError:
        # There is no row of metrics to convert.
        return {}
