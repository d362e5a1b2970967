"""Arguments that all of Calve's DAGs have."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset

from calve_airflow.failure_reasons import record_reason
from calve_airflow.notifying import notify_failure

_RETRIES: Mapping[str, Any] = {
    "retries": 3,
    "retry_delay": timedelta(seconds=15),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
}
"""Default arguments of tasks: retries after about 15, 30 and 60 s, so that short outages pass."""

_CALLBACK = "on_failure_callback"


def calve_dag(dag_id: str, changes: Mapping[str, Any], *, schedule: str | list[Asset] | None, **own: Any) -> DAG:
    """Return a DAG of Calve without tasks.

    Args:
        dag_id: The DAG's id.
        schedule: The DAG's own schedule.
        changes: Arguments of `DAG` that a user has chosen. They replace the DAG's own, `default_args` one by one;
            callbacks for failures run after the DAG's own, which record the failure in the catalog.
        own: The DAG's own arguments of `DAG`.
    """
    own_args = {**_RETRIES, **own.pop("default_args", {})}
    own_args[_CALLBACK] = [*_listed(own_args.get(_CALLBACK)), record_reason, notify_failure]
    default_args = _replaced(own_args, changes.get("default_args", {}))
    own = {"catchup": False, "render_template_as_native_obj": True, "schedule": schedule, **own}
    arguments = {**_replaced(own, changes), "default_args": default_args}
    return DAG(dag_id, schedule=arguments.pop("schedule"), **arguments)


def _replaced(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    callbacks = [callback for given in (own, changes) for callback in _listed(given.get(_CALLBACK))]
    return {**own, **changes, **({_CALLBACK: callbacks} if callbacks else {})}


def _listed(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
