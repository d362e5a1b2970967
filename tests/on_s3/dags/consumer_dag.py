"""Run once for each new partition of demo.flights, and once for each load."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, PartitionedAssetTimetable

from calve_airflow.assets import Change, change_asset, table_asset

with DAG("consumer", schedule=PartitionedAssetTimetable(assets=table_asset("demo.flights"))):
    EmptyOperator(task_id="consume")

with DAG("loads", schedule=[change_asset("demo.flights", Change.LOADED)]):
    EmptyOperator(task_id="consume")
