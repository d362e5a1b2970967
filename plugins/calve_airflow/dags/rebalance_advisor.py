"""Analyse the partitions of tables, and propose splits, merges, new partitions, and compactions of small files.

Runs daily or on the schedule in `CALVE_ADVISOR_SCHEDULE` (a cron expression, a preset, or `none`), and on demand. The
file statistics in the catalog show which partitions are much larger than the others and which are very small. Values
are counted only if the statistics do not show where to split a partition. Partitions of tables without a partition
scheme are compacted by the policy in the table's entry (`compaction`), or by its defaults.

| task | does |
| --- | --- |
| look | finds the partitions whose values must be counted |
| count_values | for each table with such partitions: counts the values of the partition column in them (Spark) |
| propose | logs the proposals and their reasons; XCom `proposals` has them as forms of other DAGs |
| apply | runs `rebalance_partitions` or `compact_partitions` with each proposal that the table's entry allows |
| summarise | logs and returns the proposals and what was applied; fails if an applied proposal failed |

The entry `rebalance: {apply: true}` of a table has its proposals applied; `catalog/settings/rebalance_rules.py`
describes the other settings. No proposal deletes rows, and a second run after all proposals were applied proposes
nothing.

Examples: `{}`; `{"tables": ["demo.delays"], "dry_run": true}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.partitions import advisor_params
from calve_airflow.forms.templates import only
from calve_airflow.operators.advising import (
    ApplyProposalOperator,
    CountValuesOfTablesOperator,
    LookAtPartitionsOperator,
    ProposeOperator,
    SummariseAdviceOperator,
)
from calve_airflow.operators.loading import OPERATION_ID
from calve_airflow.settings import advisor_schedule, spark_pool


def rebalance_advisor_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    with calve_dag(
        "rebalance_advisor",
        arguments,
        doc_md=__doc__,
        schedule=advisor_schedule(),
        params=advisor_params(),
        tags=["calve", "partitions"],
        max_active_runs=1,
    ) as dag:
        look = LookAtPartitionsOperator(task_id="look")
        count = CountValuesOfTablesOperator.partial(
            task_id="count_values", pool=spark_pool(), map_index_template="{{ task.title }}"
        ).expand(batch=look.output)
        propose = ProposeOperator(
            task_id="propose",
            tables="{{ ti.xcom_pull('look', key='tables') }}",
            # Runs also if counting failed or was skipped: usually nothing has to be counted, and the next run retries.
            trigger_rule="all_done",
        )
        apply = ApplyProposalOperator.partial(
            task_id="apply",
            # Changes of one table cannot run concurrently.
            max_active_tis_per_dagrun=1,
            map_index_template="{{ task.statement }}",
        ).expand_kwargs(propose.output.map(only("table", "statement")))
        summarise = SummariseAdviceOperator(
            task_id="summarise",
            operation_id=OPERATION_ID,
            planned="{{ ti.xcom_pull('propose', key='proposals') }}",
            counts="{{ ti.xcom_pull('look') }}",
        )

        look >> [count, propose]
        count >> propose >> apply >> summarise
    return dag
