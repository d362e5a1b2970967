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

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.whole_catalog import statement_params
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


def run_statement_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "run_statement",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=statement_params(),
        tags=["calve", "partitions"],
        default_args={"on_failure_callback": FAILURE_CALLBACKS},
        on_failure_callback=FAILURE_CALLBACKS,
    ) as dag:
        check = ReadStatementOperator(task_id="check")
        approve = ApproveDeletionOperator(task_id="approve", ask=statement_question)
        run = RunStatementOperator(
            task_id="run", operation_id=OPERATION_ID, pool=spark_pool(), trigger_rule="none_failed"
        )

        check >> approve >> run
    return dag
