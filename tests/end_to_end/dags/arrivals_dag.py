"""Waits for partitions, and for an operation, in the triggerer."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from calve_airflow.sensors.operations import OperationSensor
from calve_airflow.sensors.partitions import PartitionSensor

TABLE = "{{ params.table }}"
# Airflow fails a task that resumes before its scheduler has read that the deferred part ended.
COMMON = {"poke_interval": 0.5, "timeout": 900, "retries": 2, "retry_delay": timedelta(seconds=1)}

with DAG("arrivals", schedule=None, params={name: Param(type="string") for name in ("table", "operation")}):
    PartitionSensor(task_id="named", table=TABLE, partitions=["day=1/hour=0", "day=1/hour=1"], **COMMON)
    PartitionSensor(task_id="matching", table=TABLE, expression="day = 1", at_least=2, **COMMON)
    PartitionSensor(task_id="refused", table=TABLE, expression="year = 1", **COMMON)
    OperationSensor(task_id="operation", operation_id="{{ params.operation }}", must_exist=False, **COMMON)
