"""Import tables of a Hive Metastore or of Glue, with their partitions, into the catalog, without touching files.

| task | does |
| --- | --- |
| plan | finds the databases and tables that the form selects, and creates missing databases |
| approve | waits for a person other than the requester if vanished partitions are to be dropped |
| import | for each table: creates or compares it, and adds the new partitions |
| summarise | logs and returns the result of each table; fails if one was not imported |

A repeated import adds new partitions and reports the tables and partitions whose definition differs from the source or
that have vanished there; the form says whether to update and to drop them. Files always stay. Tables that would be read
incorrectly (Iceberg, Delta, Hudi, ACID) are refused with the reason; they fail the run only if the form names them
without a pattern. The failure of a table does not prevent the others, and every task can be killed and run again.

Dry run is on by default: it reports what would be done. Credentials for Glue come from the environment of the workers,
as for every AWS client.

Examples: `{"source": "hms://metastore:9083", "tables": ["sales"], "dry_run": false}`;
`{"source": "glue://eu-west-1", "tables": ["sales.order_*", "crm.people"], "update": true, "dry_run": false}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.whole_catalog import import_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.importing import (
    ImportTablesOperator,
    PlanImportOperator,
    SummariseImportOperator,
    import_question,
)
from calve_airflow.operators.loading import OPERATION_ID


def import_tables_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "import_tables",
        arguments,
        doc_md=__doc__,
        schedule=None,
        params=import_params(),
        tags=["calve", "tables"],
        max_active_runs=1,
    ) as dag:
        plan = PlanImportOperator(task_id="plan")
        approve = ApproveDeletionOperator(task_id="approve", ask=import_question)
        import_table = ImportTablesOperator.partial(
            task_id="import",
            max_active_tis_per_dagrun=4,
            map_index_template="{{ task.title }}",
            trigger_rule="none_failed",
        ).expand(batch=plan.output)
        summarise = SummariseImportOperator(
            task_id="summarise",
            operation_id=OPERATION_ID,
            planned="{{ ti.xcom_pull('plan') }}",
            reports="{{ (ti.xcom_pull('import') or []) | list }}",
        )

        plan >> approve >> import_table >> summarise
    return dag
