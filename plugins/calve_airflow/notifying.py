"""Calls of the Airflow notifiers that `tables.yaml` and `CALVE_NOTIFY` name.

They are called in the process of the task, with its context and in it `calve`: `event`, `table`, `message`, and what
else is known. A notifier that fails, or takes too long, is logged, and fails nothing.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from typing import TYPE_CHECKING, Any

from calve_airflow.catalog_access import open_catalog
from calve_airflow.metrics import Metric, count

if TYPE_CHECKING:
    from airflow.sdk import Context

    from catalog.settings.notify_rules import NotifierRule, NotifyEvent, NotifyRules

LONGEST_SECONDS = 60
"""The time that a notifier has. One that waits for a server would hold its task, and the next runs of its DAG."""

log = logging.getLogger(__name__)


def notify_failure(context: Context) -> None:
    """Call the notifiers for a task that has failed after its last try; for `on_failure_callback`.

    A task with `notifies_failure = False` has told what it tells by its failure.
    """
    from catalog.settings.notify_rules import NotifyEvent

    task = context.get("task") or getattr(context.get("ti"), "task", None)
    if not getattr(task, "notifies_failure", True):
        return
    name = getattr(task, "task_id", None)
    message = str(context.get("exception") or f"task {name} failed")
    for table in _tables_of(context):
        run = context.get("dag_run")
        count(Metric.FAILURES, table=table, dag_id=str(getattr(run, "dag_id", "")), task_id=str(name))
        notify(context, NotifyEvent.FAILURE, table, message, task=name)


def notify(context: Context, event: NotifyEvent, table: str | None, message: str, **more: Any) -> None:
    """Call the notifiers for an event.

    Args:
        table: The table that it concerns; None for the notifiers of all tables.
        message: What has happened, for people.
        more: Further values for the notifiers' templates.
    """
    told = {"event": event.value, "table": table, "message": message, **more}
    for rule in _rules(event, table):
        try:
            with _at_most(LONGEST_SECONDS):
                # A copy, because a notifier adds its own fields to it.
                _notifier(rule)({**context, "calve": deepcopy(told)})
        except (Exception, SystemExit) as error:
            log.warning(
                "Notifier %s could not be called for %s of %s: %s: %s",
                *(rule.path, event, table or "no table", type(error).__name__, error),
            )


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Interrupt the block after some time; outside of the main thread, which has the signals, it has no limit.

    Airflow's own limit, the task's `execution_timeout`, uses the same timer, and continues after the block.

    Raises:
        TimeoutError: The block took too long.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"it has not returned for {seconds:g} seconds")

    began, handler = time.monotonic(), signal.signal(signal.SIGALRM, interrupt)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            # At once if it would have been over.
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001), interval)


def _notifier(rule: NotifierRule) -> Any:
    module, _, name = rule.path.rpartition(".")
    return getattr(import_module(module), name)(**rule.arguments)


def _rules(event: NotifyEvent, table: str | None) -> Sequence[NotifierRule]:
    """Return the notifiers of the table's entry, or else those of all tables."""
    from catalog.settings.notify_rules import rules_of_all_tables
    from catalog.settings.own_rules import own_notify_rules

    def own_rules() -> NotifyRules | None:
        return own_notify_rules(table) if table else None

    readers: Sequence[Callable[[], NotifyRules | None]] = (own_rules, rules_of_all_tables)
    for read in readers:
        try:
            rules = read()
        except Exception as error:
            log.warning("The notifiers for %s of %s cannot be read: %s", event, table or "no table", error)
            continue
        if rules is not None and event in rules.notifiers:
            return rules.notifiers[event]
    return ()


def _tables_of(context: Context) -> Iterable[str | None]:
    """Return the tables that a task works on: of its batch, its arguments, the run's form, or the run's operation."""
    task = context.get("task") or getattr(context.get("ti"), "task", None)
    batch, own = getattr(task, "batch", None), getattr(task, "table", None)
    if isinstance(batch, list):
        named = [item.get("table") for item in batch if isinstance(item, Mapping)]
        if tables := [table for table in named if isinstance(table, str)]:
            return tables
    if isinstance(own, str) and own:
        return [own]
    form = (context.get("params") or {}).get("table")
    return [form] if isinstance(form, str) and form else [_table_of_operation(context)]


def _table_of_operation(context: Context) -> str | None:
    run = context.get("dag_run")
    if run is None:
        return None
    try:
        with open_catalog() as catalog:
            operation = catalog.operations.find(f"{run.dag_id}/{run.run_id}")
    except Exception as error:
        log.warning("The table of the run's operation cannot be read: %s", error)
        return None
    return None if operation is None else operation.table
