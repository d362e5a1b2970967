"""The DAG `run_statement`, which `calve_airflow.dags.run_statement` describes."""

from calve_airflow.dags.run_statement import run_statement_dag

run_statement_dag()
