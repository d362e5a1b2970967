"""The DAG `import_tables`, which `calve_airflow.dags.import_tables` describes."""

from calve_airflow.dags.import_tables import import_tables_dag

import_tables_dag()
