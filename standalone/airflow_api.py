"""A small client of Airflow's REST API v2: what the launcher, the demo and the end-to-end tests ask."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from standalone.errors import AirflowApiError

ENDED_STATES = frozenset({"success", "failed"})
HEALTH_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_POLL_SECONDS = 0.3


class AirflowApi:
    """Talks to one Airflow as one user; logs in when first needed, and again when the token has expired.

    Args:
        base_url: Where the API server listens, e.g. `http://127.0.0.1:8080`.
        username: A user of the simple auth manager.
        password: The user's password.
        timeout_seconds: How long one request may take.
    """

    def __init__(self, base_url: str, username: str, password: str, *, timeout_seconds: float = 60.0) -> None:
        self.base_url = base_url
        self.username = username
        self._password = password
        self._timeout_seconds = timeout_seconds
        self._token: str | None = None

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON answer of GET `path` (below `/api/v2`); arguments become the query.

        Raises:
            AirflowApiError: The answer is an error, or there is none.
        """
        return self._request("GET", f"{path}?{urlencode(query, doseq=True)}" if query else path)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Return the JSON answer of POST `path` (below `/api/v2`). Raises as `get` does."""
        return self._request("POST", path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        """Return the JSON answer of PATCH `path` (below `/api/v2`). Raises as `get` does."""
        return self._request("PATCH", path, body)

    def health(self) -> dict[str, str]:
        """Return the status of each component: `healthy`, `unhealthy` or, before its first heartbeat, `unknown`."""
        answer = self._send("GET", "/api/v2/monitor/health", None, token=None)
        return {name: (answer.get(name) or {}).get("status") or "unknown" for name in HEALTH_COMPONENTS}

    def warm_up(self) -> None:
        """Make the API server build what the first task would otherwise wait for."""
        self._send("GET", "/execution/health", None, token=None)

    def trigger(
        self,
        dag_id: str,
        conf: Mapping[str, object] | None = None,
        partition_key: str | None = None,
        *,
        run_id: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> str:
        """Start a run of a DAG and return its id.

        Args:
            dag_id: The DAG. One that the DAG processor has not seen yet is waited for.
            conf: Parameters of the run.
            partition_key: Key of the asset partition that the run makes.
            run_id: Id of the run; default: Airflow makes one.
            timeout_seconds: How long to wait for the DAG to appear.

        Raises:
            AirflowApiError: No such DAG appeared, or a parameter was refused (status 400 or 422).
        """
        body: dict[str, object] = {"logical_date": None, "conf": dict(conf or {})}
        if partition_key is not None:
            body["partition_key"] = partition_key
        if run_id is not None:
            body["dag_run_id"] = run_id
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                return str(self.post(f"/dags/{quote(dag_id)}/dagRuns", body)["dag_run_id"])
            except AirflowApiError as error:
                if error.status != 404 or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_SECONDS)

    def wait(self, dag_id: str, run_id: str, timeout_seconds: float = 300.0) -> str:
        """Return the state in which the run ended, `success` or `failed`.

        Raises:
            AirflowApiError: The run did not end in time; the message lists the states of its tasks.
        """
        deadline = time.monotonic() + timeout_seconds
        while (state := str(self.dag_run(dag_id, run_id)["state"])) not in ENDED_STATES:
            if time.monotonic() > deadline:
                tasks = {task["task_id"]: task["state"] for task in self.task_instances(dag_id, run_id)}
                raise AirflowApiError(
                    f"Run {run_id} of {dag_id} is {state} after {timeout_seconds:.0f} s; tasks: {tasks}"
                )
            time.sleep(_POLL_SECONDS)
        return state

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return the run as Airflow describes it."""
        run: dict[str, Any] = self.get(_run_path(dag_id, run_id))
        return run

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the DAG's latest 100 runs, the newest first."""
        runs: list[dict[str, Any]] = self.get(f"/dags/{quote(dag_id)}/dagRuns", order_by="-run_after", limit=100)[
            "dag_runs"
        ]
        return runs

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the run's task instances, one for each index of a mapped task."""
        tasks: list[dict[str, Any]] = self.get(f"{_run_path(dag_id, run_id)}/taskInstances", limit=100)[
            "task_instances"
        ]
        return tasks

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", *, map_index: int = -1) -> Any:
        """Return a value that the task pushed.

        Raises:
            AirflowApiError: It pushed none of this key (status 404).
        """
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        return self.get(path, map_index=map_index, stringify="false")["value"]

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, *, map_index: int = -1) -> str:
        """Return the log of one try of the task, one event a line, the values that an event carries after it."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}"
        content = self.get(path, map_index=map_index, full_content="true")["content"]
        return "\n".join(_log_line(event) for event in content)

    def asset_events(self, **query: object) -> list[dict[str, Any]]:
        """Return asset events, the newest first; arguments filter, e.g. `source_dag_id`, `source_run_id`."""
        events: list[dict[str, Any]] = self.get("/assets/events", order_by="-timestamp", limit=100, **query)[
            "asset_events"
        ]
        return events

    def _request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        try:
            return self._send(method, f"/api/v2{path}", body, token=self._token or self._log_in())
        except AirflowApiError as error:
            if error.status != 401:
                raise
        return self._send(method, f"/api/v2{path}", body, token=self._log_in())

    def _log_in(self) -> str:
        credentials = {"username": self.username, "password": self._password}
        self._token = str(self._send("POST", "/auth/token", credentials, token=None)["access_token"])
        return self._token

    def _send(self, method: str, path: str, body: Mapping[str, object] | None, *, token: str | None) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base_url + path, data=data, headers=headers, method=method)
        try:
            with _OPENER.open(request, timeout=self._timeout_seconds) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")
            raise AirflowApiError(f"{method} {path} was refused with {error.code}: {detail}", error.code) from error
        except (OSError, http.client.HTTPException) as error:
            raise AirflowApiError(f"{method} {path} got no answer from {self.base_url}: {error}") from error
        return json.loads(text) if text else None


# What every event of a task's log repeats.
_KNOWN_OF_EVENT = {
    *("timestamp", "event", "level", "logger", "filename", "lineno"),
    *("ti_id", "dag_id", "run_id", "task_id", "try_number", "map_index"),
}

# A proxy that the environment names must not see requests to 127.0.0.1.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _log_line(event: str | dict[str, Any]) -> str:
    if isinstance(event, str):
        return event
    extra = {key: value for key, value in event.items() if key not in _KNOWN_OF_EVENT}
    return f"{event['event']} {json.dumps(extra)}" if extra else str(event["event"])
