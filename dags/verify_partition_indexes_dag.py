"""The DAG `verify_partition_indexes`, which `calve_airflow.dags.verify_partition_indexes` describes."""

from calve_airflow.dags.verify_partition_indexes import verify_partition_indexes_dag

verify_partition_indexes_dag()
