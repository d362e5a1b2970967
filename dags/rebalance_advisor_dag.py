"""The DAG `rebalance_advisor`, which `calve_airflow.dags.rebalance_advisor` describes."""

from calve_airflow.dags.rebalance_advisor import rebalance_advisor_dag

rebalance_advisor_dag()
