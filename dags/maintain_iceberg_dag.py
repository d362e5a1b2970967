"""The DAG `maintain_iceberg`, which `calve_airflow.dags.maintain_iceberg` describes."""

from calve_airflow.dags.maintain_iceberg import maintain_iceberg_dag

maintain_iceberg_dag()
