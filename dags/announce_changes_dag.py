"""The DAG `announce_changes`, which `calve_airflow.dags.announce_changes` describes."""

from calve_airflow.dags.announce_changes import announce_changes_dag

announce_changes_dag()
