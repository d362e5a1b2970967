"""The DAG `catalog_maintenance`, which `calve_airflow.dags.catalog_maintenance` describes."""

from calve_airflow.dags.catalog_maintenance import catalog_maintenance_dag

catalog_maintenance_dag()
