"""Functions that return Calve's DAGs, for a file in the folder of DAGs of any Airflow.

    from calve_airflow.dags import calve_dags
    calve_dags()

The file brings all DAGs. Each module of this package has the function of its own DAG, with arguments of `DAG` that
replace its own, for instance `verify_partition_indexes_dag(schedule="@hourly", default_args={"queue": "lake"})`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow.sdk import DAG, get_parsing_context

_SINGLE = (
    "announce_changes",
    "backfill_partition_indexes",
    "build_partition_index",
    "catalog_maintenance",
    "compact_partitions",
    "import_tables",
    "maintain_iceberg",
    "migrate_hive_to_iceberg",
    "rebalance_advisor",
    "rebalance_partitions",
    "run_statement",
    "verify_partition_indexes",
)
"""The modules with one DAG, each named after it."""


def calve_dags(**arguments: Any) -> list[DAG]:
    """Return all DAGs; while Airflow runs a task, only its own.

    Args:
        arguments: Arguments of `DAG` that replace those of each, for instance `default_args` or `max_active_runs`.
    """
    # Modules are imported only if they are needed: each loads its own operators, and every task imports this package.
    from calve_airflow.dags.add_partitions import add_partitions_dags

    asked = get_parsing_context().dag_id
    dags = []
    for name in _SINGLE:
        if asked in (None, name):
            module = import_module(f"calve_airflow.dags.{name}")
            dags.append(getattr(module, f"{name}_dag")(**arguments))
    return [*dags, *add_partitions_dags(**arguments)]
