"""Compact the small files of partitions, by the policies in the list of tables (`compaction:`).

Runs daily or on the schedule in `CALVE_COMPACTION_SCHEDULE` (a cron expression, a preset, or `none`), and on demand. A
policy says which partitions are compacted (`min_files`, `min_age`), into files of which size (`target_file_size`), and
how much in 24 hours (`at_most_per_day`), including compactions by hand. The counts in the catalog show which partitions
have small files; no folder is listed.

| task | does |
| --- | --- |
| plan | finds the partitions with small files, and logs them |
| compact | for each table: writes their rows to fewer files, and replaces them in one transaction (Spark) |
| summarise | logs and returns what was compacted, skipped and left to later runs; fails if a table failed |

It does what `ALTER TABLE … COMPACT` does: readers see the old files or the new ones, and the old ones stay for the
grace time. A table that another operation holds is skipped until the next run. Iceberg tables are compacted by
Iceberg's own `rewrite_data_files`, without the limit of a day. Every task can be killed and run again.

Examples: `{}`; `{"tables": ["shop.orders"], "dry_run": true}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.partitions import compaction_params
from calve_airflow.operators.compacting import (
    CompactTablesOperator,
    PlanCompactionOperator,
    SummariseCompactionOperator,
)
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.settings import compaction_schedule, spark_pool


def compact_partitions_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "compact_partitions",
        arguments,
        doc_md=__doc__,
        schedule=compaction_schedule(),
        params=compaction_params(),
        tags=["calve", "partitions", "maintenance"],
        max_active_runs=1,
    ) as dag:
        plan = PlanCompactionOperator(task_id="plan")
        compact = CompactTablesOperator.partial(
            task_id="compact", pool=spark_pool(), map_index_template="{{ task.title }}"
        ).expand(batch=plan.output)
        summarise = SummariseCompactionOperator(
            task_id="summarise",
            operation_id=OPERATION_ID,
            planned="{{ ti.xcom_pull('plan', key='planned') }}",
        )

        plan >> compact >> summarise
    return dag
