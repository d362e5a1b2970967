"""Remove obsolete files and records: replaced files, leftovers of failed jobs, old operations.

Runs daily or on the schedule in `CALVE_MAINTENANCE_SCHEDULE` (a cron expression, a preset, or `none`), and on demand.
Tables stay readable and writable. Replaced files stay for a grace period, so that running readers finish; so do all
files of an operation that may still be running.

| task | does |
| --- | --- |
| approve | waits for another person if files stay for less than 24 hours or operations for less than 90 days |
| vacuum | deletes replaced and dropped files, and those of attempts that did not commit; fails if some stay |
| expire_operations | ends abandoned operations; deletes old operations, job logs of its host, and quality checks |
| clear_failed_builds | removes what failed builds and deletions of partition indexes left behind |
| check_catalog | reports where the catalog differs from the files, damaged indexes and small files; changes nothing |
| summarise | logs and returns what was removed; fails if one of the others did, and says why |

Every task can be killed and run again, and the failure of one does not prevent the others. Clearing the failed tasks of
a run repeats what failed.

Examples: `{}`; `{"dry_run": true, "grace_hours": 0}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.whole_catalog import maintenance_params
from calve_airflow.operators.approval import ApproveDeletionOperator
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.operators.maintenance import (
    CHECK,
    CLEAR,
    EXPIRE,
    VACUUM,
    CheckCatalogOperator,
    ClearFailedBuildsOperator,
    ExpireOperationsOperator,
    SummariseMaintenanceOperator,
    VacuumOperator,
    maintenance_question,
)
from calve_airflow.settings import maintenance_schedule

GRACE_HOURS = "{{ params.grace_hours }}"
DRY_RUN = "{{ params.dry_run }}"


def catalog_maintenance_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "catalog_maintenance",
        arguments,
        doc_md=__doc__,
        schedule=maintenance_schedule(),
        params=maintenance_params(),
        tags=["calve", "maintenance"],
        # Tasks are serialized instead of runs, so that a run that waits for an approval does not block scheduled runs.
        default_args={"max_active_tis_per_dag": 1},
    ) as dag:
        approve = ApproveDeletionOperator(task_id="approve", ask=maintenance_question, max_active_tis_per_dag=None)
        vacuum = VacuumOperator(task_id=VACUUM, grace_hours=GRACE_HOURS, is_dry_run=DRY_RUN, trigger_rule="none_failed")
        expire = ExpireOperationsOperator(
            task_id=EXPIRE, retention_days="{{ params.retention_days }}", is_dry_run=DRY_RUN, trigger_rule="all_done"
        )
        clear = ClearFailedBuildsOperator(task_id=CLEAR, is_dry_run=DRY_RUN, trigger_rule="all_done")
        check = CheckCatalogOperator(task_id=CHECK, trigger_rule="all_done")
        summarise = SummariseMaintenanceOperator(
            task_id="summarise",
            operation_id=OPERATION_ID,
            planned={task: f"{{{{ ti.xcom_pull('{task}') }}}}" for task in (VACUUM, EXPIRE, CLEAR, CHECK)},
        )

        approve >> vacuum >> expire >> clear >> check >> summarise
    return dag
