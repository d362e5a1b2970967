"""Calve's plugin of Airflow."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from calve_airflow import preloading
from calve_airflow.pages.links import OperationLink, QualityLink
from calve_airflow.pages.mounting import NAVIGATION_ROUTE, PREFIX, Pages, Preparation, view

_RUN = "/operation?dag_id={DAG_ID}&run_id={RUN_ID}"
_PAGES = Pages()


class CalvePlugin(AirflowPlugin):
    """What Calve adds to Airflow's own processes."""

    name = "calve"
    # Airflow declares them as lists.
    listeners = [preloading]  # noqa: RUF012
    fastapi_apps = [{"app": _PAGES, "url_prefix": PREFIX, "name": "Calve"}]  # noqa: RUF012
    fastapi_root_middlewares = [{"middleware": Preparation, "args": [_PAGES], "name": "Calve"}]  # noqa: RUF012
    global_operator_extra_links = [OperationLink(), QualityLink()]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        view("Calve", NAVIGATION_ROUTE, "nav", "/", nav_top_level=True),
        view("Calve", "calve-dag", "dag", "/operations?dag_id={DAG_ID}"),
        view("Calve", "calve-run", "dag_run", _RUN),
        view("Calve", "calve-tasks", "task", "/operations?dag_id={DAG_ID}"),
        view("Calve", "calve-task", "task_instance", f"{_RUN}&task_id={{TASK_ID}}&map_index={{MAP_INDEX}}"),
    ]
