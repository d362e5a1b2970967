"""Calve's plugin of Airflow."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from calve_airflow import preloading


class CalvePlugin(AirflowPlugin):
    """What Calve adds to Airflow's own processes."""

    name = "calve"
    listeners = [preloading]  # noqa: RUF012 - Airflow declares it as a list
