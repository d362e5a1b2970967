"""Turn Hive tables into Iceberg tables, in place: no data file is copied or changed.

The form is a dry run unless told otherwise: it says what would become of each table, and what stands against it. Tables
are named, meant by a pattern (`sales.orders_*`), or all of a database (`sales.*`). Until `flip`, everybody sees the
Hive table; loads and other changes of it wait, or are refused, from `stage` to `flip`.

| task | does |
| --- | --- |
| plan | says of each table what its columns become, what it has, and why it cannot be migrated |
| stage | for each table: compares every footer with it, and writes metadata where nobody looks (Spark) |
| verify | for each table: compares what Hive reads with what Iceberg would read, by partition and column (Spark) |
| flip | for each table: makes it an Iceberg table, in one transaction, with exactly the files that were verified |
| report | says in its log, and returns, what became of each table; fails when one could not be migrated, and says why |

A dry run ends behind `stage`, which then only reads; it can be left out, too. One table's failure does not stop the
others. Every task can be killed and run again. When files or partitions arrive behind `stage`, `flip` refuses the
table; clear its `stage` then. As many tables are staged and verified at a time as the pool has slots that
`CALVE_SPARK_POOL` names. `verify` needs Iceberg's runtime, which Spark gets from Maven Central unless
`CALVE_SPARK_PACKAGES` says otherwise.

The way back is a statement, which `run_statement` runs: `CALL iceberg.system.revert('sales', 'orders')`.

Examples: `{"tables": ["sales.*"]}`; `{"tables": ["sales.orders"], "recursive_directory": "true", "dry_run": false}`
"""

from datetime import timedelta

from airflow.sdk import DAG, task_group

from calve_airflow.forms.forms import migration_params
from calve_airflow.forms.templates import only
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.operators.migrating import (
    FlipMigrationOperator,
    PlanMigrationsOperator,
    StageMigrationOperator,
    SummariseMigrationsOperator,
    VerifyMigrationOperator,
    give_up_migration,
)
from calve_airflow.settings import spark_pool

FORM = "{{ params }}"

with DAG(
    "migrate_hive_to_iceberg",
    schedule=None,
    params=migration_params(),
    doc_md=__doc__,
    tags=["calve", "iceberg"],
    max_active_runs=1,
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15)},
):
    plan = PlanMigrationsOperator(task_id="plan", operation_id=OPERATION_ID, form=FORM)

    @task_group(prefix_group_id=False)
    def each_table(table):
        """One table, whose failure stops no other."""
        common = {
            "table": table,
            "map_index_template": "{{ task.table }}",
            "on_failure_callback": give_up_migration,
        }
        stage = StageMigrationOperator(task_id="stage", pool=spark_pool(), **common)
        verify = VerifyMigrationOperator(task_id="verify", pool=spark_pool(), **common)
        # Without verification there is nothing upstream that succeeds.
        flip = FlipMigrationOperator(task_id="flip", trigger_rule="none_failed", **common)
        stage >> verify >> flip

    report = SummariseMigrationsOperator(
        task_id="report",
        operation_id=OPERATION_ID,
        planned="{{ ti.xcom_pull('plan', key='plans') }}",
        form=FORM,
    )

    each_table.expand_kwargs(plan.output.map(only("table"))) >> report
