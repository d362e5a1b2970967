"""The DAGs `add_partitions…`, which `calve_airflow.dags.add_partitions` describes."""

from calve_airflow.dags.add_partitions import add_partitions_dags

add_partitions_dags()
