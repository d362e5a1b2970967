"""Change the partitions of a table: add, split, drop or merge them, or set the number of hash partitions.

Also place the files that other engines have written to the table, each in its partition.

Dry run is on by default: the log of `plan` shows what would be done. Only the affected partitions are read and written;
readers see the table before or after the change, never in between. From `rewrite` to `commit`, loads and other changes
of the table wait or are refused.

| task | does |
| --- | --- |
| plan | reports the partitions to read, the data to move and delete, and the duration; a dry run stops after it |
| approve | waits for a person if rows would be deleted or the table's entry asks for it; Reject changes nothing |
| rewrite | begins the operation and stages the new files (Spark, if rows have to move) |
| verify | compares row count and checksum of each new partition with the old files (Spark) |
| commit | makes the change visible, in one transaction, with exactly the verified files |
| summarise | logs and returns the contents of each partition before and after the change |

Every task can be killed and run again. `rewrite` makes a new plan, because the table may have changed; if the new plan
deletes other rows, start another run to approve them. Clear a failed run from `rewrite` to continue it; vacuum removes
its unused files. Replaced and dropped files stay for running readers until vacuum.

The entry `rebalance: {approval: true}` of a table has a person approve every change of its partitions.

Examples: `{"table": "demo.delays", "operation": "split", "partition_ids": [4], "items": ["30", "60"]}`;
`{"table": "demo.delays", "operation": "drop", "partition_ids": [2], "with_data": true, "dry_run": false}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.partitions import rebalance_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.loading import OPERATION_ID, fail_operation
from calve_airflow.operators.rebalancing import (
    CommitRebalanceOperator,
    PlanRebalanceOperator,
    RewritePartitionsOperator,
    SummariseRebalanceOperator,
    VerifyRewriteOperator,
    rebalance_question,
)
from calve_airflow.settings import spark_pool


def rebalance_partitions_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "rebalance_partitions",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=rebalance_params(),
        tags=["calve", "partitions"],
        default_args={"on_failure_callback": fail_operation},
        on_failure_callback=fail_operation,
    ) as dag:
        plan = PlanRebalanceOperator(task_id="plan", operation_id=OPERATION_ID, form="{{ params }}")
        approve = ApproveDeletionOperator(task_id="approve", ask=rebalance_question)
        rewrite = RewritePartitionsOperator(
            task_id="rewrite", operation_id=OPERATION_ID, pool=spark_pool(), trigger_rule="none_failed"
        )
        verify = VerifyRewriteOperator(task_id="verify", operation_id=OPERATION_ID, pool=spark_pool())
        commit = CommitRebalanceOperator(task_id="commit", operation_id=OPERATION_ID, trigger_rule="none_failed")
        summarise = SummariseRebalanceOperator(task_id="summarise", operation_id=OPERATION_ID)

        plan >> approve >> rewrite >> verify >> commit >> summarise
    return dag
