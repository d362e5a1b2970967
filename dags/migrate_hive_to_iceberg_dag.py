"""The DAG `migrate_hive_to_iceberg`, which `calve_airflow.dags.migrate_hive_to_iceberg` describes."""

from calve_airflow.dags.migrate_hive_to_iceberg import migrate_hive_to_iceberg_dag

migrate_hive_to_iceberg_dag()
