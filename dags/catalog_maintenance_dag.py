"""Clear away what nobody needs any more: replaced files, leftovers of jobs that died, old operations.

Daily, or when the environment's `CALVE_MAINTENANCE_SCHEDULE` says (a cron expression, a preset, or `none`), and by the
form. Tables stay readable and writable. Files that were replaced stay for a grace period, in which readers that began
before may go on; so do all files of an operation that may still be at work.

| task | does |
| --- | --- |
| approve | waits for another person where less stays than usual: 24 hours of files, 90 days of operations |
| vacuum | deletes replaced and dropped files, and what attempts that did not commit have left |
| expire_operations | ends operations that nobody works on any more, and forgets those that ended long ago |
| clear_failed_builds | removes what dead builds and deletions of partition indexes have left |
| summarise | says in its log, and returns, what was cleared away; fails when something could not be, and says why |

Every task can be killed and run again, and one's failure stops no other.

Examples: `{}`; `{"dry_run": true, "grace_hours": 0}`
"""

from datetime import timedelta

from airflow.sdk import DAG

from calve_airflow.forms.forms import maintenance_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.operators.maintenance import (
    CLEAR,
    EXPIRE,
    VACUUM,
    ClearFailedBuildsOperator,
    ExpireOperationsOperator,
    SummariseMaintenanceOperator,
    VacuumOperator,
    maintenance_question,
)
from calve_airflow.settings import maintenance_schedule

GRACE_HOURS = "{{ params.grace_hours }}"
DRY_RUN = "{{ params.dry_run }}"

with DAG(
    "catalog_maintenance",
    schedule=maintenance_schedule(),
    params=maintenance_params(),
    doc_md=__doc__,
    tags=["calve", "maintenance"],
    catchup=False,
    render_template_as_native_obj=True,
    # Tasks wait for one another, not runs: one that waits for an approval holds up none of the schedule.
    default_args={"retries": 2, "retry_delay": timedelta(seconds=15), "max_active_tis_per_dag": 1},
):
    approve = ApproveDeletionOperator(task_id="approve", ask=maintenance_question, max_active_tis_per_dag=None)
    vacuum = VacuumOperator(task_id=VACUUM, grace_hours=GRACE_HOURS, is_dry_run=DRY_RUN, trigger_rule="none_failed")
    expire = ExpireOperationsOperator(
        task_id=EXPIRE, retention_days="{{ params.retention_days }}", is_dry_run=DRY_RUN, trigger_rule="all_done"
    )
    clear = ClearFailedBuildsOperator(task_id=CLEAR, is_dry_run=DRY_RUN, trigger_rule="all_done")
    summarise = SummariseMaintenanceOperator(
        task_id="summarise",
        operation_id=OPERATION_ID,
        planned={task: f"{{{{ ti.xcom_pull('{task}') }}}}" for task in (VACUUM, EXPIRE, CLEAR)},
    )

    approve >> vacuum >> expire >> clear >> summarise
