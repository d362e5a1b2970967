"""Runs once for each new partition of demo.flights."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, PartitionedAssetTimetable

from calve_airflow.assets import table_asset

with DAG("consumer", schedule=PartitionedAssetTimetable(assets=table_asset("demo.flights"))):
    EmptyOperator(task_id="consume")
