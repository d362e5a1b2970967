"""The DAG `rebalance_partitions`, which `calve_airflow.dags.rebalance_partitions` describes."""

from calve_airflow.dags.rebalance_partitions import rebalance_partitions_dag

rebalance_partitions_dag()
