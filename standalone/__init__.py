"""An embedded stack for one machine: PostgreSQL, Airflow and Spark from PyPI packages, started by one command.

`bootstrap`, `java` and `errors` run before the virtual environment exists, and use only the standard library.
"""
