"""Spark application that runs several jobs, one after another (`spark_jobs.sessions.application`)."""

from __future__ import annotations

import sys
from importlib import import_module

from spark_jobs.sessions.application import JobFunction, run_jobs

NEEDED_LATER = {
    "validate_source": ("spark_jobs.write_partitions", "spark_jobs.check_quality", "great_expectations"),
    "write_partitions": ("spark_jobs.check_quality", "great_expectations"),
}
"""Script → modules that the jobs after it need."""

_NAMES = {"compact_partitions": "compact_and_record", "count_values": "count_and_record"}
"""Script → its function, if this does not have the script's name."""


def job_function(script: str) -> JobFunction:
    """Return the function that a script calls."""
    function: JobFunction = getattr(import_module(f"spark_jobs.{script}"), _NAMES.get(script, script))
    return function


if __name__ == "__main__":
    raise SystemExit(run_jobs(sys.argv[1], job_function, NEEDED_LATER))
