"""Calve on one machine by one command: PostgreSQL, Airflow and Spark without installing any of them.

Only what this package needs to run before the virtual environment exists (`bootstrap`, `java`, `errors`) is limited
to the standard library.
"""
