"""Run once for each changed, and once for each dropped partition of a table that is changed outside of Airflow."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, PartitionedAssetTimetable

from calve_airflow.assets import dropped_asset, table_asset

with DAG("changed", schedule=PartitionedAssetTimetable(assets=table_asset("lake.compacted"))):
    EmptyOperator(task_id="consume")

with DAG("dropped", schedule=PartitionedAssetTimetable(assets=dropped_asset("lake.compacted"))):
    EmptyOperator(task_id="consume")
