"""Import of Calve's modules before tasks start.

Airflow's executors that run tasks on the scheduler's host fork a process for each task. What the scheduler has imported
is there in each of them, and importing the catalog takes as long as the rest of a short task.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

_SCHEDULER = "scheduler"
_MODULES: Sequence[str] = (
    "calve_airflow.dags.add_partitions",
    "catalog.catalog",
    "catalog.loading.registering",
    "psycopg",
    "pyarrow.dataset",
)
"""Modules that import, with what they import, all that the tasks of a load need."""


@hookimpl
def on_starting(component: Any) -> None:
    """Import the modules in the scheduler, before it starts an executor."""
    # The job does not have its type yet.
    if _SCHEDULER not in sys.argv[1:2]:
        return
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            # Tasks that need the module say it; a scheduler that starts no task need not have the packages.
            log.info("%s is not imported before tasks start: %s", name, error)
