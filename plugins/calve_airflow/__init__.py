"""Calve's Airflow plugin: operators, sensors, triggers and assets."""
