"""The DAG `backfill_partition_indexes`, which `calve_airflow.dags.backfill_partition_indexes` describes."""

from calve_airflow.dags.backfill_partition_indexes import backfill_partition_indexes_dag

backfill_partition_indexes_dag()
