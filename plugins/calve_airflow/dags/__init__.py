"""Functions that return Calve's DAGs, for a file in the folder of DAGs of any Airflow.

    from calve_airflow.dags import calve_dags
    calve_dags()

The file brings all DAGs. Another one may call the function of a single DAG, with arguments of `DAG` that replace its
own, for instance `verify_partition_indexes_dag(schedule="@hourly", default_args={"queue": "lake"})`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, get_parsing_context

from calve_airflow.dags.add_partitions import add_partitions_dags
from calve_airflow.dags.backfill_partition_indexes import backfill_partition_indexes_dag
from calve_airflow.dags.build_partition_index import build_partition_index_dag
from calve_airflow.dags.catalog_maintenance import catalog_maintenance_dag
from calve_airflow.dags.import_tables import import_tables_dag
from calve_airflow.dags.maintain_iceberg import maintain_iceberg_dag
from calve_airflow.dags.migrate_hive_to_iceberg import migrate_hive_to_iceberg_dag
from calve_airflow.dags.rebalance_advisor import rebalance_advisor_dag
from calve_airflow.dags.rebalance_partitions import rebalance_partitions_dag
from calve_airflow.dags.run_statement import run_statement_dag
from calve_airflow.dags.verify_partition_indexes import verify_partition_indexes_dag

__all__ = [
    "add_partitions_dags",
    "backfill_partition_indexes_dag",
    "build_partition_index_dag",
    "calve_dags",
    "catalog_maintenance_dag",
    "import_tables_dag",
    "maintain_iceberg_dag",
    "migrate_hive_to_iceberg_dag",
    "rebalance_advisor_dag",
    "rebalance_partitions_dag",
    "run_statement_dag",
    "verify_partition_indexes_dag",
]

_SINGLE = {
    "backfill_partition_indexes": backfill_partition_indexes_dag,
    "build_partition_index": build_partition_index_dag,
    "catalog_maintenance": catalog_maintenance_dag,
    "import_tables": import_tables_dag,
    "maintain_iceberg": maintain_iceberg_dag,
    "migrate_hive_to_iceberg": migrate_hive_to_iceberg_dag,
    "rebalance_advisor": rebalance_advisor_dag,
    "rebalance_partitions": rebalance_partitions_dag,
    "run_statement": run_statement_dag,
    "verify_partition_indexes": verify_partition_indexes_dag,
}


def calve_dags(**arguments: Any) -> list[DAG]:
    """Return all DAGs; while Airflow runs a task, only its own.

    Args:
        arguments: Arguments of `DAG` that replace those of each, for instance `default_args` or `max_active_runs`.
    """
    asked = get_parsing_context().dag_id
    dags = [build(**arguments) for name, build in _SINGLE.items() if asked in (None, name)]
    return [*dags, *add_partitions_dags(**arguments)]
