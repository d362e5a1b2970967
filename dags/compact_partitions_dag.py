"""The DAG `compact_partitions`, which `calve_airflow.dags.compact_partitions` describes."""

from calve_airflow.dags.compact_partitions import compact_partitions_dag

compact_partitions_dag()
