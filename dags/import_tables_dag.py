"""Bring the tables of a Hive Metastore or of Glue into the catalog: definitions and partitions. No file is touched.

| task | does |
| --- | --- |
| plan | finds the databases and tables that are meant, and creates the databases that are not there |
| approve | waits for a person, who is not the one who asked, where vanished partitions are dropped |
| import | for each table: creates it, or compares it, and adds the partitions that are new |
| summarise | says in its log, and returns, what became of each table; fails when one was not imported |

Again, it adds the partitions that are new, and says which tables and partitions are defined otherwise than in the
source, and which have vanished there; the form says whether to change and to drop them. Files stay in any case. Tables
that would read wrong (Iceberg, Delta, Hudi, ACID) are refused with the reason: the run fails only for those that were
named one by one. One failing table stops no other, and every task can be killed and run again.

The form's default is a dry run: it says what would be done. Credentials for Glue come from the environment of the
workers, as for every AWS client.

Examples: `{"source": "hms://metastore:9083", "tables": ["sales"], "dry_run": false}`;
`{"source": "glue://eu-west-1", "tables": ["sales.order_*", "crm.people"], "update": true, "dry_run": false}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import import_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.importing import (
    ImportTableOperator,
    PlanImportOperator,
    SummariseImportOperator,
    import_question,
)
from calve_airflow.operators.loading import OPERATION_ID

with DAG(
    "import_tables",
    schedule=None,
    params=import_params(),
    doc_md=__doc__,
    tags=["calve", "tables"],
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15)},
):
    plan = PlanImportOperator(task_id="plan")
    approve = ApproveDeletionOperator(task_id="approve", ask=import_question)
    each = ImportTableOperator.partial(
        task_id="import",
        max_active_tis_per_dagrun=4,
        map_index_template="{{ task.table }}",
        trigger_rule="none_failed",
    ).expand(table=plan.output)
    summarise = SummariseImportOperator(
        task_id="summarise",
        operation_id=OPERATION_ID,
        planned="{{ ti.xcom_pull('plan') }}",
        reports="{{ (ti.xcom_pull('import') or []) | list }}",
    )

    plan >> approve >> each >> summarise
