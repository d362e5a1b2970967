"""Build the partition indexes that tables lack, for many tables or all.

Which indexes a table shall have, says its entry in the YAML list (`CALVE_TABLES`), or the form. An index that is ACTIVE
is left alone, so a run can be repeated; one whose build died is taken up where it stopped. The tables stay readable and
writable.

| task | does |
| --- | --- |
| plan | compares the indexes that the tables shall have with those that they have |
| build | for each table: creates what is missing, and writes the items (Spark) |
| wait_until_active | for each table: waits without a worker slot; fails with code and detail when an index FAILED |
| summarise | says in its log, and returns, what became of each index; fails when one is not ACTIVE, and says which |

One table's failure, or its wrong entry in the list, does not stop the others, but the run has failed then; cleared when
the reason is gone, it builds what is still missing. As many tables are built at a time as the pool has slots that
`CALVE_SPARK_POOL` names.

Examples: `{}`; `{"tables": ["demo.flights"], "indexes": ["by_route: origin, carrier", "by_carrier: carrier, year"]}`
"""

from datetime import timedelta

from airflow.sdk import DAG, task_group

from calve_airflow.forms.forms import backfill_params
from calve_airflow.forms.templates import only
from calve_airflow.operators.backfilling import BackfillIndexesOperator, PlanBackfillOperator, SummariseBackfillOperator
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.sensors.indexes import PartitionIndexSensor
from calve_airflow.settings import spark_pool

with DAG(
    "backfill_partition_indexes",
    schedule=None,
    params=backfill_params(),
    doc_md=__doc__,
    tags=["calve", "indexes"],
    max_active_runs=1,
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15)},
):
    plan = PlanBackfillOperator(task_id="plan")

    @task_group(prefix_group_id=False)
    def each_table(table):
        """One table, with the indexes that it lacks."""
        build = BackfillIndexesOperator(
            task_id="build",
            table=table,
            pool=spark_pool(),
            map_index_template="{{ task.table }}",
        )
        PartitionIndexSensor(
            task_id="wait_until_active", table=table, index=build.output, map_index_template="{{ task.table }}"
        )

    summarise = SummariseBackfillOperator(
        task_id="summarise",
        operation_id=OPERATION_ID,
        planned="{{ ti.xcom_pull('plan') }}",
        wanted="{{ ti.xcom_pull('plan', key='wanted') }}",
        config_problems="{{ ti.xcom_pull('plan', key='config_problems') }}",
    )

    each_table.expand_kwargs(plan.output.map(only("table"))) >> summarise
