"""Run one SQL statement: create tables, change their partitions, insert or select rows.

Statements that the catalog alone can execute run at once; all others become a Spark job. A retried or cleared run does
not repeat a statement that has run, so no row is inserted twice.

| task | does |
| --- | --- |
| check | parses the statement; an error shows its position |
| approve | waits for another person if data would be lost: DROP … WITH DATA or PURGE, revert |
| run | runs the statement, logs its result as a table, and returns its first rows as JSON |

Reject ends the run, and nothing is changed. A deletion runs only if it is still exactly the approved one. For scripts
of several statements, use `calve sql`.

Examples: `{"statement": "SHOW PARTITIONS demo.delays"}`;
`{"statement": "ALTER TABLE demo.delays SPLIT PARTITION (4) INTO ('30', '60')"}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import statement_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.loading import OPERATION_ID, fail_operation
from calve_airflow.operators.statements import (
    ReadStatementOperator,
    RunStatementOperator,
    fail_statement,
    statement_question,
)
from calve_airflow.settings import spark_pool

FAILURE_CALLBACKS = [fail_operation, fail_statement]

with DAG(
    "run_statement",
    schedule=None,
    params=statement_params(),
    doc_md=__doc__,
    tags=["calve", "partitions"],
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15), "on_failure_callback": FAILURE_CALLBACKS},
    on_failure_callback=FAILURE_CALLBACKS,
):
    check = ReadStatementOperator(task_id="check")
    approve = ApproveDeletionOperator(task_id="approve", ask=statement_question)
    run = RunStatementOperator(task_id="run", operation_id=OPERATION_ID, pool=spark_pool(), trigger_rule="none_failed")

    check >> approve >> run
