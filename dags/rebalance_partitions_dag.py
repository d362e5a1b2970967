"""Change the partitions of a table: add, split, drop, merge, or another number of hash partitions.

The form is a dry run unless told otherwise: the log of `plan` then says what would be done. Only the partitions that
the change concerns are read and written; readers see the table before or after, never between. Loads and other changes
of the table wait, or are refused, from `rewrite` to `commit`.

| task | does |
| --- | --- |
| plan | says which partitions are read, what is moved and deleted, and how long it takes; a dry run ends here |
| approve | waits for a person where rows would be deleted; Reject ends the run, and nothing is changed |
| rewrite | begins the operation, and writes the new files where no reader looks (Spark, if rows have to be moved) |
| verify | compares rows and checksum of each new partition with the old files (Spark) |
| commit | makes the change visible, in one transaction, with exactly the files that were verified |
| summarise | says in its log, and returns, what each partition held before and holds now |

Every task can be killed and run again. `rewrite` makes a new plan, because the table may have changed; only a
deletion has to be approved again then, in another run. A failed run is taken up by clearing it from `rewrite`; what it
wrote in vain, vacuum removes. The files that were replaced or dropped stay for readers at work until vacuum.

Examples: `{"table": "demo.delays", "operation": "split", "partition_ids": [4], "items": ["30", "60"]}`;
`{"table": "demo.delays", "operation": "drop", "partition_ids": [2], "with_data": true, "dry_run": false}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import rebalance_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.loading import OPERATION_ID, give_up_operation
from calve_airflow.operators.rebalancing import (
    CommitRebalanceOperator,
    PlanRebalanceOperator,
    RewritePartitionsOperator,
    SummariseRebalanceOperator,
    VerifyRewriteOperator,
    rebalance_question,
)

with DAG(
    "rebalance_partitions",
    schedule=None,
    params=rebalance_params(),
    doc_md=__doc__,
    tags=["calve", "partitions"],
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15), "on_failure_callback": give_up_operation},
    on_failure_callback=give_up_operation,
):
    plan = PlanRebalanceOperator(task_id="plan", operation_id=OPERATION_ID, form="{{ params }}")
    approve = ApproveDeletionOperator(task_id="approve", ask=rebalance_question)
    rewrite = RewritePartitionsOperator(task_id="rewrite", operation_id=OPERATION_ID, trigger_rule="none_failed")
    verify = VerifyRewriteOperator(task_id="verify", operation_id=OPERATION_ID)
    commit = CommitRebalanceOperator(task_id="commit", operation_id=OPERATION_ID, trigger_rule="none_failed")
    summarise = SummariseRebalanceOperator(task_id="summarise", operation_id=OPERATION_ID)

    plan >> approve >> rewrite >> verify >> commit >> summarise
