"""Terminal output of `make demo`, and the commands and DAG runs that it starts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from standalone.errors import StandaloneError
from standalone.stack import Stack

_RUN_TIMEOUT_SECONDS = 1200.0
_SEPARATOR = "calve_result_separator"
_ENDED = ("success", "failed", "skipped", "upstream_failed")


class DemoError(StandaloneError):
    """A step of the demo did not have the expected result."""


class Guide:
    """Prints on the terminal, and runs commands and DAGs on a running stack.

    Attributes:
        api: Airflow's REST API.
        home: The stack's state folder.
    """

    def __init__(self, stack: Stack) -> None:
        """Use a running stack."""
        self.api = stack.api
        self.home = stack.home
        self._environment = stack.environment
        self._console = Console(highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        """Print the title of a section."""
        self._console.print(f"\n[bold]{text}[/bold]")

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False)

    def run_sql(self, script: str) -> None:
        """Print statements, and run them with `calve sql`.

        Raises:
            DemoError: A statement failed.
        """
        for line in script.strip().splitlines():
            self.say(f"  {line}")
        with self._progress() as progress:
            progress.add_task("calve sql runs the statements", total=None)
            self._run("calve", "sql", script)

    def run_spark_sql(self, *queries: str) -> None:
        """Run queries with `spark-sql` and the settings of `calve spark-conf --jdbc`; print queries and results.

        Raises:
            DemoError: spark-sql failed.
        """
        settings = self.home / "spark-iceberg.conf"
        settings.touch(mode=0o600)
        settings.write_text(self._run("calve", "spark-conf", "--jdbc"))
        # Without the first, spark-sql would create an embedded Hive metastore in the current folder.
        properties = ("spark.sql.catalogImplementation=in-memory", "spark.sql.cli.print.header=true")
        options = [word for name_and_value in properties for word in ("--conf", name_and_value)]
        script = f"\n;\nSELECT '{_SEPARATOR}' AS {_SEPARATOR};\n".join(queries)
        with self._progress() as progress:
            progress.add_task("spark-sql runs the queries", total=None)
            # The settings of a cluster are in Spark's own file.
            files = ("--properties-file", str(settings), "--load-spark-defaults")
            output = self._run("spark-sql", *files, *options, "-e", script)
        for query, rows in zip(queries, output.split(f"{_SEPARATOR}\n{_SEPARATOR}\n"), strict=True):
            self.say(f"\n  {query}\n")
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
            header, *lines = (line.split("\t") for line in rows.splitlines())
            for name in header:
                table.add_column(name, header_style="dim")
            for cells in lines:
                table.add_row(*cells)
            self._console.print(table)

    def run_dag(self, dag_id: str, form: Mapping[str, object], expected: str = "success") -> str:
        """Trigger a DAG, print its tasks as they end, and return the run's id.

        Raises:
            DemoError: The run ended in another state than `expected`.
        """
        run_id = self.api.trigger(dag_id, form)
        deadline = time.monotonic() + _RUN_TIMEOUT_SECONDS
        with self._progress() as progress:
            bar = progress.add_task(f"Airflow runs {dag_id}")
            shown: set[tuple[str, int]] = set()
            while (state := str(self.api.dag_run(dag_id, run_id)["state"])) not in ("success", "failed"):
                if time.monotonic() > deadline:
                    raise DemoError(
                        f"run {run_id} of {dag_id} is {state} after {_RUN_TIMEOUT_SECONDS:.0f} s; try again when the "
                        "machine is less busy"
                    )
                self._show_tasks(dag_id, run_id, progress, bar, shown)
                time.sleep(0.5)
            self._show_tasks(dag_id, run_id, progress, bar, shown)
        if state != expected:
            failed = next(task for task in self.api.task_instances(dag_id, run_id) if task["state"] == "failed")
            raise DemoError(
                f"run {run_id} of {dag_id} ended as {state}, expected {expected}. The log of {failed['task_id']}:\n"
                f"{self.api.task_log(dag_id, run_id, failed['task_id'], failed['try_number'])[-4000:]}"
            )
        return run_id

    def _run(self, *command: str) -> str:
        """Run a command of the virtual environment with the stack's environment variables; return its output."""
        path = Path(sys.executable).with_name(command[0])
        done = subprocess.run([path, *command[1:]], env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoError(f"{' '.join(command[:2])} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _progress(self) -> Progress:
        columns = (TextColumn("  {task.description}"), BarColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self._console, transient=True)

    def _show_tasks(self, dag_id: str, run_id: str, progress: Progress, bar: Any, shown: set[tuple[str, int]]) -> None:
        tasks = self.api.task_instances(dag_id, run_id)
        ended = [task for task in tasks if task["state"] in _ENDED]
        progress.update(bar, completed=len(ended), total=len(tasks))
        for task in sorted(ended, key=lambda task: task["end_date"] or ""):
            name = (task["task_id"], task["map_index"])
            if name not in shown:
                shown.add(name)
                if task["state"] in ("success", "failed"):
                    progress.console.print(
                        f"  {task['state']:8} {task['duration'] or 0:5.1f} s  {dag_id}: {task['task_id']}"
                    )
