"""Waits for a partition index that somebody else builds."""

from airflow.sdk import DAG, Param

from calve_airflow.index_sensor import PartitionIndexSensor

with DAG("waiter", schedule=None, params={"table": Param(type="string"), "index": Param(type="string")}):
    PartitionIndexSensor(
        task_id="wait", table="{{ params.table }}", index="{{ params.index }}", poke_interval=0.5, timeout=900
    )
