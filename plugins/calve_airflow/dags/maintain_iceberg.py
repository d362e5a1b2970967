"""Maintain Iceberg tables: compaction, changes of the partition spec, expiry of snapshots, removal of orphan files.

Dry run is on by default: it shows the statements that would be run. The form names tables, patterns (`sales.orders_*`)
or whole databases (`sales.*`). Tables stay readable and writable.

| task | does |
| --- | --- |
| plan | finds the Iceberg tables and plans the statements for them; a dry run stops after it |
| approve | waits for a person other than the requester if files are to be deleted; Reject ends the run |
| maintain | for each table: runs the statements in order through Iceberg's JDBC catalog (Spark) |
| summarise | logs and returns the results of the statements; fails if one failed, and says why |

The statements, in this order: changes of the partition spec (`ALTER TABLE … PARTITION FIELD`), `rewrite_data_files`,
`expire_snapshots`, and `remove_orphan_files`, which is off by default. The last two delete only files in the table's
own folder that no other Iceberg table reaches; Iceberg's procedures of these names would delete the files of others,
too. A killed task can be run again; it does not repeat finished statements. Statements that delete files are skipped
for a table that shares files with another table (a table made by `CALL iceberg.system.snapshot`, or one that was given
files of a Hive table), and where another table has its folder inside or around.

The failure of a table does not prevent the others. The slots of the pool `CALVE_SPARK_POOL` limit the number of tables
maintained at the same time. Spark gets Iceberg's runtime and the database's driver from Maven Central by default; see
`CALVE_SPARK_PACKAGES`.

Examples: `{"tables": ["sales.*"]}`; `{"tables": ["sales.orders"], "expire_snapshots": false, "dry_run": false}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.iceberg import iceberg_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.iceberg_maintenance import (
    MaintainIcebergTablesOperator,
    PlanIcebergUpkeepOperator,
    SummariseIcebergUpkeepOperator,
    upkeep_question,
)
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.settings import spark_pool


def maintain_iceberg_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "maintain_iceberg",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=iceberg_params(),
        tags=["calve", "iceberg", "maintenance"],
        max_active_runs=1,
    ) as dag:
        plan = PlanIcebergUpkeepOperator(task_id="plan")
        approve = ApproveDeletionOperator(task_id="approve", ask=upkeep_question)
        maintain = MaintainIcebergTablesOperator.partial(
            task_id="maintain", pool=spark_pool(), map_index_template="{{ task.title }}", trigger_rule="none_failed"
        ).expand(batch=plan.output)
        summarise = SummariseIcebergUpkeepOperator(
            task_id="summarise",
            operation_id=OPERATION_ID,
            planned="{{ ti.xcom_pull('plan', key='statements') }}",
            is_dry_run="{{ params.dry_run }}",
        )

        plan >> approve >> maintain >> summarise
    return dag
