"""Metrics that Spark takes of rows on their way."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Observation


def metrics(observation: Observation) -> dict[str, Any]:
    """Return what was observed; nothing when Spark found that there are no rows, and left the observation out.

    It does so before it begins, or between two stages (its rule `AQEPropagateEmptyRelation`).
    """
    try:
        return observation.get
    except Py4JJavaError:
        # There is no row of metrics that could be converted.
        return {}
