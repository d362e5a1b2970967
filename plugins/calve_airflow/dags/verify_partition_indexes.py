"""Compare the items of partition indexes with the partitions, and repair differences if the form says so.

An ACTIVE index has exactly one item for each partition. This DAG checks it daily or on the schedule in
`CALVE_VERIFY_SCHEDULE` (a cron expression, a preset, or `none`), and on demand. Partitions that are added or dropped
during the check do not count as differences, and the tables stay readable and writable.

| task | does |
| --- | --- |
| plan | finds the ACTIVE indexes |
| verify | for each index: compares it with its table, and repairs it if the form says so (Spark) |
| summarise | logs and returns the result of each index; fails if one differs, and says what to do |

A run that finds a difference and does not repair it fails, so that users notice. The operation of each index also keeps
the result: `calve operations --json` shows it. The slots of the pool `CALVE_SPARK_POOL` limit the number of indexes
verified at the same time.

Examples: `{}`; `{"tables": ["demo.flights"], "repair": true}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.indexes import verify_params
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.operators.verifying import (
    PlanVerificationOperator,
    SummariseVerificationOperator,
    VerifyIndexesOperator,
)
from calve_airflow.settings import spark_pool, verification_schedule


def verify_partition_indexes_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "verify_partition_indexes",
        arguments,
        doc_md=__doc__,
        schedule=verification_schedule(),
        params=verify_params(),
        tags=["calve", "indexes"],
        max_active_runs=1,
    ) as dag:
        plan = PlanVerificationOperator(task_id="plan")
        verify = VerifyIndexesOperator.partial(
            task_id="verify",
            pool=spark_pool(),
            map_index_template="{{ task.title }}",
        ).expand(batch=plan.output)
        summarise = SummariseVerificationOperator(
            task_id="summarise", operation_id=OPERATION_ID, planned="{{ ti.xcom_pull('plan') }}"
        )

        verify >> summarise
    return dag
