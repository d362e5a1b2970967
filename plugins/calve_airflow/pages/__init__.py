"""Calve's pages in Airflow's UI."""
