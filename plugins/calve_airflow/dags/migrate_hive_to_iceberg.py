"""Migrate Hive tables to Iceberg in place, without copying or changing data files.

Dry run is on by default: it reports what each table would become and what prevents its migration. The form names
tables, patterns (`sales.orders_*`) or whole databases (`sales.*`). Until `flip`, all readers see the Hive table; from
`stage` to `flip`, loads and other changes of the table wait or are refused.

| task | does |
| --- | --- |
| plan | reports for each table its new column types, its contents, and why it cannot be migrated |
| stage | for each table: compares every footer with the table, and stages Iceberg metadata (Spark) |
| verify | for each table: compares what Hive and Iceberg read, by partition and column (Spark) |
| flip | for each table: commits the switch to Iceberg, in one transaction, with exactly the verified files |
| report | logs and returns the result of each table; fails if one could not be migrated, and says why |

A dry run stops after `stage`, which then only reads and can be skipped. The failure of a table does not prevent the
others. Every task can be killed and run again. If files or partitions arrive after `stage`, `flip` refuses the table;
clear its `stage` then. The slots of the pool `CALVE_SPARK_POOL` limit the number of tables that are staged and verified
at the same time. `verify` needs Iceberg's runtime, which Spark gets from Maven Central by default; see
`CALVE_SPARK_PACKAGES`.

To revert a migration, run a statement with `run_statement`: `CALL iceberg.system.revert('sales', 'orders')`.

Examples: `{"tables": ["sales.*"]}`; `{"tables": ["sales.orders"], "recursive_directory": "true", "dry_run": false}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task_group

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.iceberg import migration_params
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.operators.migrating import (
    FlipMigrationsOperator,
    PlanMigrationsOperator,
    StageMigrationsOperator,
    SummariseMigrationsOperator,
    VerifyMigrationsOperator,
    fail_migration,
)
from calve_airflow.settings import spark_pool

FORM = "{{ params }}"


def migrate_hive_to_iceberg_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "migrate_hive_to_iceberg",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=migration_params(),
        tags=["calve", "iceberg"],
        max_active_runs=1,
    ) as dag:
        plan = PlanMigrationsOperator(task_id="plan", operation_id=OPERATION_ID, form=FORM)

        @task_group(prefix_group_id=False)
        def each_batch(batch: Any) -> None:
            """Migrate a table, or several of very many."""
            common = {
                "batch": batch,
                "map_index_template": "{{ task.title }}",
                "on_failure_callback": [fail_migration, *dag.default_args.get("on_failure_callback", ())],
            }
            stage = StageMigrationsOperator(task_id="stage", pool=spark_pool(), **common)
            verify = VerifyMigrationsOperator(task_id="verify", pool=spark_pool(), **common)
            # If the form turns the verification off, `verify` is skipped and `flip` has no successful upstream task.
            flip = FlipMigrationsOperator(task_id="flip", trigger_rule="none_failed", **common)
            stage >> verify >> flip

        report = SummariseMigrationsOperator(
            task_id="report",
            operation_id=OPERATION_ID,
            planned="{{ ti.xcom_pull('plan', key='plans') }}",
            form=FORM,
        )

        each_batch.expand(batch=plan.output) >> report
    return dag
