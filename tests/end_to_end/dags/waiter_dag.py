"""Waits for a partition index that another run builds."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from calve_airflow.sensors.indexes import PartitionIndexSensor

with DAG("waiter", schedule=None, params={"table": Param(type="string"), "index": Param(type="string")}):
    PartitionIndexSensor(
        task_id="wait",
        table="{{ params.table }}",
        index="{{ params.index }}",
        poke_interval=0.5,
        timeout=900,
        # Airflow fails a task that resumes before its scheduler has read that the deferred part ended.
        retries=2,
        retry_delay=timedelta(seconds=1),
    )
