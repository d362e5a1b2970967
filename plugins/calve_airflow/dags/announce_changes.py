"""Announce partitions that were changed outside of Airflow's loads, as events of their tables' assets.

Runs when partitions were added, changed, released or dropped by the command line, a statement, the API, a metastore's
protocol, another engine, or a task that does not announce them itself, as loads do. The catalog records each change in
its own transaction; an asset watcher looks for records every 10 seconds, and needs Airflow's triggerer.

| task | does |
| --- | --- |
| claim | claims all changes that nobody has announced; without any, the run is skipped |
| announce | for each batch of up to 500 partitions: emits an event for each partition |
| finish | forgets the changes that were announced |
| find_outcomes | finds loads, rebalances, migrations and reverts that no task of Airflow has made |
| report | for each of them: emits the event, the metrics and the lineage that a task of Airflow would |

A claimed change belongs to one run, so that none is announced twice. What a failed run has claimed, a later run claims
an hour later and announces all of it again; clear the failed tasks before to announce only the rest. Dropped
partitions, also those of dropped tables, are events of an asset of their own, `calve_airflow.assets.dropped_asset`.
Airflow creates no event for an asset that no DAG refers to. Pause the DAG to announce nothing.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher

from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.partitions import announcement_params
from calve_airflow.operators.announcing import (
    AnnounceChangesOperator,
    ClaimChangesOperator,
    FindOutcomesOperator,
    FinishAnnouncementsOperator,
    ReportOutcomeOperator,
)
from calve_airflow.triggers.changes import PartitionChangesTrigger


def announce_changes_dag(**arguments: Any) -> DAG:
    """Return the DAG; the arguments replace those of its `DAG`."""
    watcher = AssetWatcher(name="calve_changes", trigger=PartitionChangesTrigger())
    with calve_dag(
        "announce_changes",
        arguments,
        doc_md=__doc__,
        schedule=[Asset(name="calve_changes", uri="x-calve:///changes", watchers=[watcher])],
        params=announcement_params(),
        tags=["calve", "partitions"],
        max_active_runs=1,
    ) as dag:
        claim = ClaimChangesOperator(task_id="claim")
        announce = AnnounceChangesOperator.partial(task_id="announce").expand(number=claim.output)
        finish = FinishAnnouncementsOperator(task_id="finish", trigger_rule="none_failed")

        find = FindOutcomesOperator(task_id="find_outcomes")
        ReportOutcomeOperator.partial(task_id="report", map_index_template="{{ task.operation }}").expand(
            operation=find.output
        )

        claim >> announce >> finish
    return dag
