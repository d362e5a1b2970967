"""Add partitions to a table from raw files, index them and check them.

`add_partitions` loads any table that its form names; `add_partitions.<database>.<table>` loads a table of the YAML list
(`CALVE_TABLES`) on its schedule. To load your own table, add an entry to the list.

| task | does |
| --- | --- |
| discover | finds the files that the table does not have yet; without new files, the run is skipped |
| validate | parses the files and checks their partitions against the table and its indexes; creates the table |
| write | writes the data files to a staging folder (Spark); a dry run stops before this task |
| register | makes all partitions visible in one transaction, each with its item in every index |
| create_indexes, build_indexes, wait_for_indexes | create and build the indexes of the table's entry that are missing |
| check_quality | checks the new partitions (Great Expectations); warns, fails, or quarantines partitions |
| quarantined | fails if the check has quarantined partitions, and says which; the run goes on, and is no failure |
| announce, announce_more | emit one event of the table's asset for each new partition, 500 in each task |

Every task can be killed and run again: nothing is added twice, and no row is dropped silently. A line that cannot be
parsed fails the run with the file's name and the line number. Clear a failed run to continue it.

A wrong entry in the list affects only its own table. The table's DAG gets the tag `wrong entry`, its documentation
begins with the error, and its runs fail with the same message: on schedule, or once if the schedule is also wrong.

Example: `{"table": "demo.flights", "source": "/data/landing/flights-2013-12.csv", "dry_run": false}`
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, TriggerRule, get_parsing_context

from calve_airflow.assets import table_asset
from calve_airflow.dags.base import calve_dag
from calve_airflow.forms.loads import load_dag_id, load_params
from calve_airflow.operators.announcing import AnnounceNewPartitionsOperator, AnnouncePartitionsOperator
from calve_airflow.operators.loading import (
    OPERATION_ID,
    BuildLoadedIndexOperator,
    CheckQualityOperator,
    CreateIndexesOperator,
    DiscoverSourcesOperator,
    LoadJobOperator,
    RegisterPartitionsOperator,
    ReportQuarantineOperator,
    WritePartitionsOperator,
    fail_operation,
)
from calve_airflow.sensors.indexes import PartitionIndexSensor
from calve_airflow.settings import read_table_list, spark_pool


def add_partitions_dags(**arguments: Any) -> list[DAG]:
    """Return the DAG of all tables and that of each listed one; while Airflow runs a task, only its own.

    Args:
        arguments: Arguments of `DAG` that replace those of each.
    """
    asked = get_parsing_context().dag_id

    def is_asked(table: str | None) -> bool:
        # `add_partitions` names the assets of all tables.
        return asked in (None, load_dag_id(table))

    listed = read_table_list(is_needed=lambda table: asked == load_dag_id(None) or is_asked(table))
    tables = {name: config for name, config in listed.configs.items() if config.source}
    dags = []
    if is_asked(None):
        assets = [table_asset(table) for table in tables]
        dags.append(_dag(None, arguments, outlets=assets, suggested=next(iter(tables), None)))
    for table, config in tables.items():
        if is_asked(table):
            dags.append(_dag(table, arguments, outlets=[table_asset(table)], schedule=config.schedule))
    for table, wrong in listed.wrong.items():
        if is_asked(table):
            # The name in a wrong entry may not be valid for an asset.
            dags.append(_dag(table, arguments, outlets=[], schedule=wrong.schedule, error=wrong.error))
    return dags


def _dag(
    table: str | None,
    arguments: dict[str, Any],
    *,
    outlets: list[Asset],
    schedule: str | None = None,
    error: object | None = None,
    suggested: str | None = None,
) -> DAG:
    with calve_dag(
        load_dag_id(table),
        arguments,
        schedule=schedule,
        doc_md=__doc__ if error is None else "\n\n".join((f"**Wrong entry.** {error}".replace("\n", "\n\n"), __doc__)),
        tags=["calve", "partitions", *(["wrong entry"] if error else [])],
        max_active_runs=1,
        default_args={"operation_id": OPERATION_ID, "on_failure_callback": fail_operation},
        # The task's callback runs at once; the run's callback also runs after a task was killed.
        on_failure_callback=fail_operation,
    ) as dag:
        discover = DiscoverSourcesOperator(task_id="discover")
        validate = LoadJobOperator(task_id="validate", job="validate_source", pool=spark_pool())
        write = WritePartitionsOperator(task_id="write", pool=spark_pool())
        register = RegisterPartitionsOperator(task_id="register")
        create = CreateIndexesOperator(task_id="create_indexes")
        build = BuildLoadedIndexOperator.partial(task_id="build_indexes", pool=spark_pool()).expand(index=create.output)
        # Without an index to build, none of these tasks starts: each start takes as long as a small load's own work.
        wait = PartitionIndexSensor.partial(
            task_id="wait_for_indexes", table="{{ ti.xcom_pull('discover', key='table') }}"
        ).expand(index=create.output)
        check = CheckQualityOperator(
            task_id="check_quality",
            job="check_quality",
            setting="quality",
            pool=spark_pool(),
            # After `register`, because in a dry run all tasks before it are skipped, and it is, too.
            trigger_rule="none_failed_min_one_success",
        )
        quarantined = ReportQuarantineOperator(task_id="quarantined")
        # A failed teardown task does not fail the run. Unlike others, it is for runs whose check has ended well.
        quarantined.as_teardown(on_failure_fail_dagrun=False)
        quarantined.trigger_rule = TriggerRule.ALL_SUCCESS
        announce = AnnounceNewPartitionsOperator(task_id="announce", outlets=outlets)
        more = AnnouncePartitionsOperator.partial(task_id="announce_more", outlets=outlets).expand(
            partitions=announce.output
        )

        discover >> validate >> write >> register >> create >> build >> wait >> check >> announce >> more
        register >> check >> quarantined
    # Added after the tasks: each of them would copy the form, and Airflow would validate and store all copies.
    dag.params.update(load_params(table, suggested=suggested))
    return dag
