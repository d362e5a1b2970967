"""Run one SQL statement: create tables, change their partitions, add rows, ask for rows.

What the catalog alone can answer, it answers at once; everything else becomes a Spark job. A statement that has run is
not run again when the run is retried or cleared: no row is added twice.

| task | does |
| --- | --- |
| check | reads the statement; an error shows its place |
| approve | waits for another person where data would be lost: DROP … WITH DATA or PURGE, revert |
| run | runs it, shows the answer in its log as a table, and returns its first rows as JSON |

Reject ends the run, and nothing is changed. A deletion is carried out only while it is just what was approved. For
scripts of several statements there is `calve sql`.

Examples: `{"statement": "SHOW PARTITIONS demo.delays"}`;
`{"statement": "ALTER TABLE demo.delays SPLIT PARTITION (4) INTO ('30', '60')"}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import statement_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.loading import OPERATION_ID, give_up_operation
from calve_airflow.operators.statements import (
    ReadStatementOperator,
    RunStatementOperator,
    give_up_statement,
    statement_question,
)

GIVE_UP = [give_up_operation, give_up_statement]

with DAG(
    "run_statement",
    schedule=None,
    params=statement_params(),
    doc_md=__doc__,
    tags=["calve", "partitions"],
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15), "on_failure_callback": GIVE_UP},
    on_failure_callback=GIVE_UP,
):
    check = ReadStatementOperator(task_id="check")
    approve = ApproveDeletionOperator(task_id="approve", ask=statement_question)
    run = RunStatementOperator(task_id="run", operation_id=OPERATION_ID, trigger_rule="none_failed")

    check >> approve >> run
