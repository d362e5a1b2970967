"""The DAG `build_partition_index`, which `calve_airflow.dags.build_partition_index` describes."""

from calve_airflow.dags.build_partition_index import build_partition_index_dag

build_partition_index_dag()
