"""The plugin imports Calve into the scheduler, and into no other process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
LOADED = "catalog.loading.publishing"


@pytest.mark.long
@pytest.mark.parametrize(("command", "is_imported"), [("scheduler", True), ("triggerer", False), ("dags", False)])
def test_only_the_scheduler_imports_the_catalog_before_tasks_start(
    tmp_path: Path, command: str, is_imported: bool
) -> None:
    code = f"""
import json, sys
sys.argv = ["airflow", {command!r}]
from airflow.jobs.job import Job
from airflow.listeners.listener import get_listener_manager
from airflow.plugins_manager import ensure_plugins_loaded, get_plugin_info

ensure_plugins_loaded()
get_listener_manager()
before = {LOADED!r} in sys.modules
Job()
names = [plugin["name"] for plugin in get_plugin_info(["name"])]
print(json.dumps([names.count("calve"), before, {LOADED!r} in sys.modules]))
"""
    arguments = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"]
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS)}
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, env=environment)
    assert json.loads(done.stdout.splitlines()[-1]) == [1, False, is_imported]
