"""Keep Iceberg tables small and quick, with Iceberg's own procedures: nothing here rewrites or deletes by itself.

The form is a dry run unless told otherwise: it says which statements would be run. Tables are named, meant by a pattern
(`sales.orders_*`), or all of a database (`sales.*`). Tables stay readable and writable.

| task | does |
| --- | --- |
| plan | finds the Iceberg tables, and says which statements are run on them; a dry run ends here |
| approve | waits for a person, who is not the one who asked, where files are deleted; Reject ends the run |
| maintain | for each table: runs them through Iceberg's JDBC catalog, one after the other (Spark) |
| summarise | says in its log, and returns, what the procedures answered; fails when one failed, and says why |

The statements, in this order: changes of the partition spec (`ALTER TABLE … PARTITION FIELD`), `rewrite_data_files`,
`expire_snapshots`, and `remove_orphan_files`, which is off unless asked for. A task that was killed can be run again;
statements that had ended are not. What deletes files is left out for a table that shares files with another one, which
Iceberg knows nothing of: one that was made by `CALL iceberg.system.snapshot`, or given files of a Hive table.

One table's failure does not stop the others. As many tables are worked on at a time as the pool has slots that
`CALVE_SPARK_POOL` names. Spark gets Iceberg's runtime and the database's driver from Maven Central unless
`CALVE_SPARK_PACKAGES` says otherwise.

Examples: `{"tables": ["sales.*"]}`; `{"tables": ["sales.orders"], "expire_snapshots": false, "dry_run": false}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import iceberg_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.iceberg_maintenance import (
    MaintainIcebergOperator,
    PlanIcebergUpkeepOperator,
    SummariseIcebergUpkeepOperator,
    upkeep_question,
)
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.settings import spark_pool

with DAG(
    "maintain_iceberg",
    schedule=None,
    params=iceberg_params(),
    doc_md=__doc__,
    tags=["calve", "iceberg", "maintenance"],
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15)},
):
    plan = PlanIcebergUpkeepOperator(task_id="plan")
    approve = ApproveDeletionOperator(task_id="approve", ask=upkeep_question)
    maintain = MaintainIcebergOperator.partial(
        task_id="maintain", pool=spark_pool(), map_index_template="{{ task.table }}", trigger_rule="none_failed"
    ).expand(table=plan.output)
    summarise = SummariseIcebergUpkeepOperator(
        task_id="summarise",
        operation_id=OPERATION_ID,
        planned="{{ ti.xcom_pull('plan', key='statements') }}",
        is_dry_run="{{ params.dry_run }}",
    )

    plan >> approve >> maintain >> summarise
